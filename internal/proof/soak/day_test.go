package soak

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/internal/proof/procs/server"
)

// roleEnv makes the test binary the server of TestRealEtcd.
const roleEnv = "SOAK_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) == "etcd" {
		os.Exit(server.Main(os.Args[1:]))
	}
	embedtest.Main(m)
}

// What a day has: twelve hours, at whose end a few bytes of each call are found.
const (
	hours     = 12
	busy      = 50 * time.Minute // of each hour; the rest is a rest
	compacted = 5 * time.Minute  // between two compactions
	away      = 40 * time.Second // how long a process is cut off in each hour: its session is lost
)

// A223: after twelve hours of mixed load, with a session lost and etcd without a leader in each hour, a process has no more
// memory and no more goroutines than in the morning, and etcd no more keys, leases and watches. It is not parallel, since
// it measures its own process.
func TestDay(t *testing.T) { //nolint:paralleltest // see above
	if testing.Short() {
		t.Skip("a day of virtual time takes half a minute")
	}
	begun := time.Now()
	tally := NewTally()
	var samples []Sample
	etcdfake.Test(t, func(t *testing.T, etcd *etcdfake.Server) { samples = day(t, etcd, tally) })
	calls, failed, first := tally.Total()
	t.Logf("%d calls in %v, %d of which failed during faults: %v", calls, time.Since(begun).Round(time.Second), failed, tally.Kinds())
	require.Less(t, failed*100, calls, "more than the faults explain: %v", first)
	morning, night := Median(samples[2:5]), Median(samples[len(samples)-3:])
	for _, r := range Compare(morning, night) {
		t.Logf("%-30s %10s in the morning, %10s in the night: × %.4f", r.Name, r.First, r.Last, r.Ratio)
		if r.Grown {
			t.Errorf("%s: %s in the morning, %s in the night", r.Name, r.First, r.Last)
		}
	}
}

// day returns a sample of each hour.
func day(t *testing.T, etcd *etcdfake.Server, tally *Tally) (samples []Sample) {
	pace := Pace{Every: 10 * time.Second, Retain: time.Minute, Ticks: time.Minute}
	var all []*Process
	var clients []*etcdfake.Client
	for i := range 3 {
		c := etcd.NewClient()
		p, err := Open(t.Context(), c.Client, fmt.Sprint("p", i), pace, tally)
		require.NoError(t, err)
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			require.NoError(t, p.Close(ctx))
		}()
		all, clients = append(all, p), append(clients, c)
	}
	for hour := range hours {
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), busy)
		var wg sync.WaitGroup
		for i, p := range all {
			wg.Go(func() { p.Work(ctx, uint64(hour*len(all)+i)) }) //nolint:gosec // small
		}
		wg.Go(func() {
			for range int(busy / compacted) {
				time.Sleep(compacted)
				etcd.Compact()
			}
		})
		wg.Go(func() {
			time.Sleep(busy / 3)
			clients[hour%len(clients)].Cut()
			time.Sleep(away)
			clients[hour%len(clients)].Heal()
			time.Sleep(busy / 3)
			etcd.SetLeader(false)
			time.Sleep(3 * time.Second)
			etcd.SetLeader(true)
		})
		wg.Wait()
		cancel()
		time.Sleep(time.Until(begun.Add(time.Hour)))
		etcd.Compact()
		synctest.Wait()
		s := OfThisProcess()
		s.Keys, s.Leases = float64(len(etcd.Keys(""))), float64(len(etcd.Leases()))
		samples = append(samples, s)
	}
	return samples
}

// What grows is found out, and what does not is not.
func TestCompare(t *testing.T) {
	t.Parallel()
	flat := Sample{Heap: 10e6, Goroutines: 100, Keys: 12, Leases: 4, Watches: 9, EtcdHeap: 30e6, EtcdRSS: 90e6, EtcdDB: 1e6}
	grown := func(change func(*Sample)) (names []string) {
		last := flat
		change(&last)
		for _, r := range Compare(flat, last) {
			if r.Grown {
				names = append(names, r.Name)
			}
		}
		return names
	}
	require.Empty(t, grown(func(*Sample) {}))
	require.Empty(t, grown(func(s *Sample) { s.Heap, s.Goroutines, s.EtcdRSS = 10.2e6, 50, 200e6 }), "within its bound, less, without a bound")
	for name, change := range map[string]func(*Sample){
		"heap of the clients, MB":   func(s *Sample) { s.Heap = 10.21e6 },
		"goroutines of the clients": func(s *Sample) { s.Goroutines = 103 },
		"keys in etcd":              func(s *Sample) { s.Keys++ },
		"leases in etcd":            func(s *Sample) { s.Leases++ },
		"watches at etcd":           func(s *Sample) { s.Watches++ },
		"heap of etcd, MB":          func(s *Sample) { s.EtcdHeap = 30.7e6 },
	} {
		require.Equal(t, []string{name}, grown(change))
	}
	require.Len(t, Compare(Sample{Heap: 1}, Sample{Heap: 1, Keys: 1}), 2, "a size that was not measured is left out")
	require.True(t, Compare(Sample{}, Sample{Keys: 1})[0].Grown, "from nothing")
	for _, tt := range []struct {
		keys []float64
		want bool
	}{
		{[]float64{41, 42, 43, 34, 42}, false}, // it varies
		{[]float64{41, 42, 42, 43, 43}, false}, // the last work has added nothing
		{[]float64{41, 42, 42, 42, 43}, true},
		{[]float64{41, 43}, true},
		{[]float64{100, 100, 101, 101, 102}, false}, // within its bound
	} {
		var rests []Sample
		for _, n := range tt.keys {
			rests = append(rests, Sample{Keys: n})
		}
		require.Equal(t, tt.want, CompareAll(rests)[0].Grown, "%v", tt.keys)
	}
	require.Equal(t, 2.0, Median([]Sample{{Keys: 9}, {Keys: 1}, {Keys: 2}}).Keys)
}
