package cron

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/crontab"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A test has so many nights; the clocks are set forward in the one in the middle.
const (
	nights = 100
	few    = 20
)

// nightly is the line of both machines.
const nightly = "30 2 * * *"

// machine is one of two whose clocks differ, and run apart: by up to half a minute from the right time, at the begin and at
// the end of the nights.
type machine struct {
	name         string
	begun        time.Time
	apart, drift float64 // in seconds, and seconds in a second
	calls        *rand.Rand
}

func newMachine(name string, seed uint64, begun time.Time, nights int) *machine {
	r := rand.New(rand.NewPCG(seed, uint64(len(name)))) //nolint:gosec // no secret
	first, last := 60*r.Float64()-30, 60*r.Float64()-30
	return &machine{name, begun, first, (last - first) / float64(nights*24*3600), r}
}

// now is what the machine takes for the time.
func (m *machine) now() time.Time { return m.shows(time.Now()) }

func (m *machine) shows(at time.Time) time.Time {
	return at.Add(time.Duration((m.apart + m.drift*at.Sub(m.begun).Seconds()) * float64(time.Second)))
}

// when returns when the machine takes it for a time.
func (m *machine) when(shown time.Time) time.Time {
	passed := (shown.Sub(m.begun).Seconds() - m.apart) / (1 + m.drift)
	return m.begun.Add(time.Duration(passed*float64(time.Second)) + time.Millisecond)
}

// called is a job that a machine calls by its own clock.
type called struct {
	*schedlock.Job
	by *machine
}

func (c called) Next(t time.Time) time.Time { return c.by.when(c.Job.Next(c.by.shows(t))) }

// town is both machines for the nights, and what is run in them.
type town struct {
	schedule crontab.Schedule
	server   *etcdfake.Server
	until    time.Time
	seed     uint64
	runs     atomic.Int64
	active   atomic.Int64
	wrong    atomic.Value // what two runs, or a call, did that they must not
}

// run is the shell job: it takes up to two minutes.
func (n *town) run(r *rand.Rand) {
	n.runs.Add(1)
	if n.active.Add(1) > 1 {
		n.wrong.Store("two runs at once")
	}
	time.Sleep(time.Duration(r.Int64N(int64(2 * time.Minute))))
	n.active.Add(-1)
}

// inTown runs what each machine does for some nights in virtual time.
func inTown(t *testing.T, seed uint64, nights int, do func(t *testing.T, n *town, m *machine)) (runs int, wrong any) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		forward := Berlin(t, "2026-03-28 12:00:00")
		schedule, err := crontab.Parse(nightly, forward.Location())
		require.NoError(t, err)
		begun := forward.AddDate(0, 0, -nights/2)
		time.Sleep(time.Until(begun))
		n := &town{schedule: schedule, server: etcdfake.New(t), until: begun.AddDate(0, 0, nights), seed: seed}
		var both sync.WaitGroup
		for _, name := range []string{"one", "other"} {
			both.Go(func() { do(t, n, newMachine(name, seed, begun, nights)) })
		}
		both.Wait()
		runs, wrong = int(n.runs.Load()), n.wrong.Load()
	})
	return runs, wrong
}

// cronCalls has the cron of a machine call `jobs run` each night, until the end.
func cronCalls(t *testing.T, n *town, m *machine, call func(ctx context.Context, l *schedlock.Locker) error) {
	t.Helper()
	for {
		at := m.when(n.schedule.Next(m.now()))
		if at.After(n.until) {
			return
		}
		time.Sleep(time.Until(at) + time.Duration(m.calls.Int64N(int64(2*time.Second)))) // the machine is busy
		l, end := host(t, n.server, "etcdkit jobs run by "+m.name+", process 1", m.now)
		if err := call(t.Context(), l); err != nil {
			n.wrong.Store(fmt.Sprintf("%s, %v: %v", m.name, m.now(), err))
		}
		end()
	}
}

// jobsRun has a machine call `jobs run` with flags.
func jobsRun(flags func(v *scheduledRun, n *town)) func(*testing.T, *town, *machine) {
	return func(t *testing.T, n *town, m *machine) {
		t.Helper()
		cronCalls(t, n, m, func(ctx context.Context, l *schedlock.Locker) error {
			v := scheduledRun{now: m.now}
			v.Call = &verb.Call{Std: verb.Streams{Out: io.Discard, Err: io.Discard}, Etcd: verb.Connection{Timeout: time.Minute}}
			v.Kind, v.Name = "job", "backup"
			v.work = func(context.Context, *schedlock.Run, []string, <-chan struct{}) error { n.run(m.calls); return nil }
			flags(&v, n)
			return v.attend(ctx, l, nil)
		})
	}
}

// daemon has a machine run `etcdkit cron` with the line, for twenty minutes each night.
func daemon(t *testing.T, n *town, m *machine) {
	t.Helper()
	for {
		at := n.schedule.Next(time.Now())
		if at.After(n.until) {
			return
		}
		time.Sleep(time.Until(at.Add(-10 * time.Minute)))
		l, end := host(t, n.server, "etcdkit cron by "+m.name+", process 1", m.now)
		planned := schedlock.Crontab{Text: n.schedule.Text(), Zone: n.schedule.Location(), Schedule: n.schedule}
		job, err := l.Job("backup", planned, func(context.Context, *schedlock.Run) error { n.run(m.calls); return nil }, schedlock.AtMost(unbounded))
		if err != nil {
			n.wrong.Store(err.Error())
			return
		}
		ctx, cancel := context.WithDeadline(t.Context(), at.Add(10*time.Minute))
		keepTime(ctx, called{job, m}, time.Now)
		cancel()
		end()
	}
}

// K49: two machines whose clocks are apart by up to a minute, and drift, run a shell job once in each of a hundred nights, one
// of which has an hour less: with `jobs run --every`, with `jobs run --cron`, and under `etcdkit cron`. -short has twenty
// nights.
func TestHundredNights(t *testing.T) {
	t.Parallel()
	nights := nights
	if testing.Short() {
		nights = few
	}
	for name, do := range map[string]func(*testing.T, *town, *machine){
		"jobs run --every": jobsRun(func(v *scheduledRun, _ *town) { v.every = 24 * time.Hour }),
		"jobs run --cron":  jobsRun(func(v *scheduledRun, n *town) { v.parsed = n.schedule }),
		"cron":             daemon,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runs, wrong := inTown(t, 0, nights, do)
			require.Nil(t, wrong)
			require.Equal(t, nights, runs)
		})
	}
}

// What TestHundredNights would not pass: a lock by name, as of `etcdkit run`, lets the machine whose clock is behind run the job
// again; days since 1970, in place of a distance from the latest run, leave out a night; without claims both run it. Twenty nights
// show it.
func TestHundredNightsOfWrongRules(t *testing.T) {
	t.Parallel()
	claim := func(tick func(now time.Time) time.Time) func(*testing.T, *town, *machine) {
		return func(t *testing.T, n *town, m *machine) {
			t.Helper()
			cronCalls(t, n, m, func(ctx context.Context, l *schedlock.Locker) error {
				_, err := l.Do(ctx, "backup", func(context.Context, *schedlock.Run) error { n.run(m.calls); return nil }, schedlock.Tick(tick(m.now())), schedlock.AtMost(unbounded))
				return err
			})
		}
	}
	for name, x := range map[string]struct {
		do          func(*testing.T, *town, *machine)
		most, least int
	}{
		"a lock by name":  {claim(func(now time.Time) time.Time { return now }), 2 * few, few + 1},
		"days since 1970": {claim(func(now time.Time) time.Time { return now.Add(-90 * time.Minute).Truncate(24 * time.Hour) }), few - 1, 1},
		"no claims": {func(t *testing.T, n *town, m *machine) {
			t.Helper()
			cronCalls(t, n, m, func(context.Context, *schedlock.Locker) error { n.run(m.calls); return nil })
		}, 2 * few, 2 * few},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runs, _ := inTown(t, 1, few, x.do)
			require.GreaterOrEqual(t, runs, x.least)
			require.LessOrEqual(t, runs, x.most)
		})
	}
}
