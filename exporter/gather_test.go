package exporter

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// An Exporter returns the same as a registry that has it: each metric, its series and their order.
func TestGatherIsThatOfARegistry(t *testing.T) {
	t.Parallel()
	space, err := keyspace.New("/etcdkit", "payments")
	require.NoError(t, err)
	s := fleet.NewState(space, false)
	now, rev := time.UnixMilli(5_000_000), int64(0)
	put := func(key, value string, lease int64) {
		rev++
		s.Put(&mvccpb.KeyValue{Key: []byte(key), Value: []byte(value), CreateRevision: rev, ModRevision: rev, Lease: lease}, now.UnixMilli())
	}
	request := record.Request{Nonce: "n", AtMS: 1, MaxHoldMS: 1000}.Encode()
	for n := range int64(3) {
		lease, name := 7+n, fmt.Sprint("name-", n)
		for _, kind := range []keyspace.Kind{keyspace.Semaphore, keyspace.Mutex, keyspace.Election, keyspace.Rate} {
			keys := space.Queue(kind, name)
			put(keys.Limit, record.Limit{Limit: n, AtMS: 1, Rate: record.Rate{PerSecond: 2, Burst: 3}}.Encode(), 0)
			put(keys.Slot(keyspace.Slot{Lease: lease, Weight: 1}), request, lease)
		}
		lim := space.Limiter(name)
		put(lim.Default, record.Limit{Limit: 1, AtMS: 1, Total: n == 1}.Encode(), 0)
		put(lim.Key("acme").Slot(keyspace.Slot{Lease: lease, Weight: 1}), request, lease)
		if n == 1 {
			put(lim.Total().Limit, "\x00", 0)
		}
		put(space.Job(name).Run(time.UnixMilli(1000)), record.Run{State: record.RunFailed, Attempt: 1, StartMS: 1000, EndMS: 2000}.Encode(), 0)
		put(space.Job(name).Lock(), "{}", lease)
		put(space.Store(name).Entry("acme", "pay", "1").Record, record.Attempt{State: record.AttemptDone, Number: 1}.Encode(), 0)
		// Clocks and deaths come in the order of their times.
		put(space.Session(lease).Alive(), record.Clock{Owner: fmt.Sprint("web-", 9-n), AtMS: now.UnixMilli() + 5000 - n}.Encode(), lease)
		put(space.Session(lease+100).Alive(), record.Clock{Owner: fmt.Sprint("gone-", 9-n), AtMS: 1}.Encode(), lease+100)
		put(space.Job("other").Lock(), "{}", lease+100)
		for _, key := range []string{space.Job("other").Lock(), space.Session(lease + 100).Alive()} {
			s.Remove(key, 1000+n, now.UnixMilli()-n)
		}
	}
	s.Settle(now.UnixMilli())
	e := &Exporter{opts: Options{Now: func() time.Time { return now }, MaxNames: 3, Probe: time.Hour}, descs: newDescs("payments")}
	of := func() []sample { return e.samplesOf(s, fleet.Meta{Up: true}) }
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(prometheus.CollectorFunc(func(ch chan<- prometheus.Metric) { send(ch, of()) }))
	want, err := reg.Gather()
	require.NoError(t, err)
	got := e.descs.families(of())
	require.Len(t, got, len(want))
	require.GreaterOrEqual(t, len(want), 30)
	for i := range want {
		require.Equal(t, want[i].String(), got[i].String())
	}

	// The labels of a scrape are those of the one before, and what that did not have is forgotten. So are those of names that are
	// not published.
	require.Empty(t, e.descs.made.now[valuesOf{2, [3]string{"mutex", "name-0"}}])
	e.opts.MaxNames = 1000
	of()
	gone := valuesOf{2, [3]string{"mutex", "name-0"}}
	same := e.descs.made.now[gone]
	require.NotEmpty(t, same)
	of()
	require.Same(t, same[0], e.descs.made.now[gone][0])
	rev++
	mutex := space.Queue(keyspace.Mutex, "name-0")
	for _, key := range []string{mutex.Limit, mutex.Slot(keyspace.Slot{Lease: 7, Weight: 1})} {
		s.Remove(key, rev, now.UnixMilli())
	}
	for range 2 {
		of()
	}
	has := func(in map[valuesOf]labels, name string) bool {
		return in[valuesOf{2, [3]string{"mutex", name}}] != nil
	}
	require.Equal(t, []bool{false, false, true}, []bool{has(e.descs.made.now, "name-0"), has(e.descs.made.before, "name-0"), has(e.descs.made.before, "name-1")})
}
