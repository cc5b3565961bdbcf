package schedlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/schedlock"
)

// The clock of one of two processes is set forward by a day, and that process claims more ticks of tomorrow than are kept. The
// other one runs its ticks: the end of a run removed records of tomorrow, and no process of the fleet started a tick until then
// (A440 in internal/proof/tested-failures.md).
func TestClockThatJumpsClosesNoJob(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	h := clock(time.Now())
	a := f.instance(nil, &schedlock.Options{Keep: 2, Now: h.now})
	early := f.instance(nil, nil) // a watches the clocks when it sees this one
	require.Eventually(t, func() bool { return len(a.Clocks()) == 1 }, soon, 20*time.Millisecond)
	require.NoError(t, early.sess.Close(ctx))
	b := f.instance(nil, nil)
	require.Eventually(t, func() bool { c := a.Clocks(); return len(c) == 1 && c[0].Known }, soon, 20*time.Millisecond)
	day := time.Now().Add(24 * time.Hour).Truncate(time.Second)
	for n := range 5 {
		at := day.Add(time.Duration(n) * time.Second)
		h.set(at)
		res, err := a.Do(ctx, "job", nothing, schedlock.Tick(at))
		require.NoError(t, err)
		require.Equal(t, schedlock.Ran, res.Outcome)
	}
	require.Empty(t, f.Keys("/floor/"))
	require.Less(t, a.Clocks()[0].Ahead, -23*time.Hour, "the step of its own clock is seen at once")
	res, err := b.Do(ctx, "job", nothing, schedlock.Tick(time.Now()))
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, res.Outcome)
}

// Each run is in a process of its own, beside two that last, as with `etcdkit jobs run` beside `etcdkit cron`: as many records stay
// as are kept. Such a process saw no beat of the others' clocks, and none of them removed a record: half a million in a year
// (A442 in internal/proof/tested-failures.md).
func TestRecordsOfShortProcesses(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	for range 2 {
		f.instance(nil, nil)
	}
	for n := range 8 {
		in := f.instance(nil, &schedlock.Options{Keep: 3})
		res, err := in.Do(ctx, "job", func(context.Context, *schedlock.Run) error {
			require.Eventually(t, func() bool { return len(in.Clocks()) == 2 }, soon, 20*time.Millisecond)
			return nil
		}, schedlock.Tick(tick(n)))
		require.NoError(t, err)
		require.Equal(t, schedlock.Ran, res.Outcome)
		require.NoError(t, in.sess.Close(ctx))
	}
	require.Len(t, f.Keys("/run/"), 3)
	require.Len(t, f.Keys("/floor/"), 1)
}

// A record of a week ahead, by a wrong clock, is not the latest one for Status: by that, no tick was missed and none overdue until
// then, and `etcdkit jobs check` found nothing (A441 in internal/proof/tested-failures.md).
func TestStatusBesideARecordOfAWrongClock(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	right, wrong := f.instance(nil, clock(friday).options()), f.instance(nil, clock(friday.AddDate(0, 0, 7)).options())
	planned := schedlock.Planned(nine{}, time.Hour)
	_, err := right.Do(ctx, "job", nothing, schedlock.Tick(friday), planned)
	require.NoError(t, err)
	_, err = wrong.Do(ctx, "job", nothing, schedlock.Tick(friday.AddDate(0, 0, 7)))
	require.NoError(t, err)
	for _, c := range []struct {
		now    time.Time
		last   time.Time
		missed time.Time
	}{
		{friday.Add(time.Hour), friday, time.Time{}},
		{friday.Add(36 * time.Hour), friday, friday.AddDate(0, 0, 1).Add(time.Hour)},
		{friday.AddDate(0, 0, 7), friday.AddDate(0, 0, 7), time.Time{}},
	} {
		reader := f.instance(nil, clock(c.now).options())
		st, err := reader.Status(ctx, "job")
		require.NoError(t, err)
		require.Equal(t, c.last.UTC(), st.Last.Tick.UTC(), c.now)
		require.Equal(t, c.missed, st.Missed(c.now), c.now)
		require.Equal(t, c.missed, st.Overdue(c.now), c.now)
	}
}

// A run is lost beside as many later records as are looked at, all by a clock that is a day fast, and so is one of these: both losses are
// reported (A441).
func TestLossesBesideRecordsOfAWrongClock(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	tomorrow := func(n int) time.Time { return tick(n).Add(24 * time.Hour) }
	fast := f.instance(nil, schedlock.WithClock(schedlock.Options{Keep: 100}, 24*time.Hour))
	for n := range 21 {
		_, err := fast.Do(ctx, "job", nothing, schedlock.Tick(tomorrow(n)))
		require.NoError(t, err)
	}
	f.dies(ctx, tick(1))
	started, _ := do(ctx, fast.Locker, "job", nil, schedlock.Tick(tomorrow(30)))
	got(t, started, "it starts")
	fast.client.Cut()
	require.NoError(t, f.ExpireLease(ctx, fast.sess.Lease()))
	var calls lostCalls
	in := f.instance(nil, calls.options())
	_, err := in.Do(ctx, "job", nothing, schedlock.Tick(tick(2)))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(calls.records()) == 2 }, soon, 20*time.Millisecond)
	require.True(t, calls.records()[0].Tick.Equal(tick(1)))
	require.True(t, calls.records()[1].Tick.Equal(tomorrow(30)))
}

// A process whose clock is ahead by more than KeepFor runs a job once: the records of the other processes stay, and the latest of
// them is that of Status. All of them were removed, and with them the failures that an alert is for
// (A466 in internal/proof/tested-failures.md).
func TestFastClockRemovesNoRecords(t *testing.T) {
	t.Parallel()
	const days = 7
	errFails := errors.New("it fails")
	fails := func(context.Context, *schedlock.Run) error { return errFails }
	for name, c := range map[string]struct {
		keep, want int
	}{"of the last days": {0, days + 1}, "one record is kept": {1, 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			h := clock(friday)
			o := h.options()
			o.Keep = c.keep
			right := f.instance(nil, o)
			for n := range days {
				h.set(friday.AddDate(0, 0, n))
				_, err := right.Do(ctx, "job", fails, schedlock.Tick(friday.AddDate(0, 0, n)))
				require.ErrorIs(t, err, errFails)
			}
			require.NoError(t, right.sess.Close(ctx))
			last := friday.AddDate(0, 0, days-1)
			right = f.instance(nil, clock(last.Add(time.Hour)).options())
			o = clock(last.AddDate(0, 0, 60)).options()
			o.Keep = c.keep
			fast := f.instance(nil, o)
			require.Eventually(t, func() bool { return schedlock.Slowest(fast.Locker).Before(last.AddDate(0, 0, 1)) }, soon, 20*time.Millisecond)
			_, err := fast.Do(ctx, "job", nothing, schedlock.Tick(last.AddDate(0, 0, 60)))
			require.NoError(t, err)
			all, err := right.History(ctx, "job")
			require.NoError(t, err)
			require.Len(t, all, c.want)
			st, err := right.Status(ctx, "job")
			require.NoError(t, err)
			require.NotNil(t, st.Last)
			require.True(t, last.Equal(st.Last.Tick))
			require.Equal(t, schedlock.RunFailed, st.Last.State)
		})
	}
}
