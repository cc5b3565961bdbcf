package schedlock_test

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

// J20: Close waits for the active run, whose lock exists as long; nothing new starts.
func TestCloseWaitsForARun(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, b := f.instance(brisk(), nil), f.instance(nil, nil)
	end := make(chan struct{})
	started, done := do(ctx, a.Locker, "job", end, schedlock.Tick(tick(1)))
	r := got(t, started, "it starts")
	shut := make(chan error, 1)
	go func() { shut <- a.sess.Close(ctx) }()
	require.Eventually(t, func() bool {
		_, err := a.Do(ctx, "other", nothing)
		return err != nil
	}, soon, 20*time.Millisecond, "it closes")
	_, err := a.Do(ctx, "other", nothing)
	require.ErrorIs(t, err, schedlock.ErrClosed)
	before := r.Deadline()
	require.Eventually(t, func() bool { return r.Deadline().Sub(before) > time.Second }, soon, 20*time.Millisecond, "renewals continue")
	require.NoError(t, r.Check(ctx))
	res, err := b.Do(ctx, "job", nothing, schedlock.Tick(tick(2)))
	require.NoError(t, err)
	require.Equal(t, schedlock.StillRunning, res.Outcome)
	select {
	case err := <-shut:
		require.FailNow(t, "Close has not waited", err)
	default:
	}
	close(end)
	require.Equal(t, schedlock.Ran, got(t, done, "it ends").res.Outcome)
	require.NoError(t, got(t, shut, "Close returns"))
	require.Empty(t, f.Keys("/lock"))
}

// J20: a Close that cannot wait ends the run with ErrClosed.
func TestCloseThatCannotWait(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	started, done := do(ctx, a.Locker, "job", nil, schedlock.Tick(tick(1)), schedlock.Retries(2))
	r := got(t, started, "it starts")
	dead, cancel := context.WithCancel(ctx)
	cancel()
	require.Error(t, a.sess.Close(dead))
	x := got(t, done, "it ends")
	require.ErrorIs(t, context.Cause(r.Context()), schedlock.ErrClosed)
	require.ErrorIs(t, x.err, schedlock.ErrClosed)
	require.ErrorIs(t, x.err, schedlock.ErrLost)
	require.Equal(t, schedlock.Lost, x.res.Outcome)
	require.Equal(t, r.Token(), x.res.Token)
	f.NoKeys("/lock")
	h, err := b.History(ctx, "job")
	require.NoError(t, err)
	require.Equal(t, schedlock.RunLost, h[0].State)
}

// J18: history is compacted and connections are cut while a call is on standby and others
// run: the call on standby returns, and nothing is left.
func TestCompactionOnStandby(t *testing.T) {
	t.Parallel()
	f := own(t)
	ctx := ctxT(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	opts := []schedlock.CallOption{schedlock.Tick(tick(1)), schedlock.Retries(1)}
	end := make(chan struct{})
	started, done := do(ctx, a.Locker, "job", end, opts...)
	got(t, started, "it starts")
	b.client.ResetRequests()
	_, waits := do(ctx, b.Locker, "job", nil, opts...)
	require.Eventually(t, func() bool { return b.client.Requests()["Txn"] > 0 }, soon, 20*time.Millisecond, "it is on standby")
	b.client.Cut()
	for range 20 {
		_, err := f.Client().Put(ctx, "noise", "")
		require.NoError(t, err)
	}
	close(end) // an event that the other one misses
	require.NoError(t, got(t, done, "it ends").err)
	_, err := f.Compact(ctx)
	require.NoError(t, err)
	b.client.Heal()
	x := got(t, waits, "the call on standby returns")
	require.NoError(t, x.err)
	require.Equal(t, schedlock.Claimed, x.res.Outcome)
	require.Empty(t, f.Keys("/lock"))
	res, err := b.Do(ctx, "job", nothing, schedlock.Tick(tick(2)), schedlock.Retries(1))
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, res.Outcome)
}

// J19: etcd does not answer. Every call returns when its ctx ends, and says why.
func TestFrozenEtcd(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(&concurrency.SessionOptions{TTL: time.Minute}, nil)
	started, done := do(ctxT(t), a.Locker, "busy", nil, schedlock.Tick(tick(1)))
	r := got(t, started, "it starts")
	require.Eventually(t, func() bool { // it has learned of the claim, so that the next call only looks
		a.client.ResetRequests()
		_, err := a.Do(ctxT(t), "job3", nothing, schedlock.Tick(tick(1)), schedlock.Retries(1))
		return err == nil && a.client.Requests()["Txn"] == 1
	}, soon, 20*time.Millisecond)
	a.client.BlackHole()
	defer a.client.Heal()
	calls := map[string]func(ctx context.Context) error{
		"Do": func(ctx context.Context) error {
			_, err := a.Do(ctx, "job", nothing, schedlock.Tick(tick(1)))
			return err
		},
		"AtLeast": func(ctx context.Context) error {
			_, err := a.Do(ctx, "job2", nothing, schedlock.AtLeast(time.Second))
			return err
		},
		"Retries": func(ctx context.Context) error {
			_, err := a.Do(ctx, "job3", nothing, schedlock.Tick(tick(1)), schedlock.Retries(1))
			return err
		},
		"History": func(ctx context.Context) error { _, err := a.History(ctx, "job"); return err },
		"Get":     func(ctx context.Context) error { _, err := a.Get(ctx, "job", tick(1)); return err },
		"Status":  func(ctx context.Context) error { _, err := a.Status(ctx, "job"); return err },
		"Jobs":    func(ctx context.Context) error { _, err := a.Jobs(ctx); return err },
		"Pause":   func(ctx context.Context) error { return a.Pause(ctx, "busy", "") },
		"Resume":  func(ctx context.Context) error { return a.Resume(ctx, "busy") },
		"Unlock":  func(ctx context.Context) error { return a.Unlock(ctx, "busy", "") },
		"Check":   r.Check,
		"Watch": func(ctx context.Context) (err error) {
			for _, err = range a.Watch(ctx, "busy") {
			}
			return err
		},
	}
	var wg sync.WaitGroup
	for name, call := range calls {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
			defer cancel()
			begun := time.Now()
			err := call(ctx)
			if took := time.Since(begun); took > 4*time.Second || err == nil || ctx.Err() == nil {
				t.Errorf("%s: %v after %v", name, err, took)
			}
		})
	}
	wg.Wait()
	// LateBy is such a bound, too, and no error.
	res, err := a.Do(ctxT(t), "job", nothing, schedlock.Tick(time.Now()), schedlock.LateBy(100*time.Millisecond))
	require.NoError(t, err)
	require.Equal(t, schedlock.Late, res.Outcome)
	// So is AtMost for an active run.
	require.NoError(t, r.Extend(10*time.Millisecond))
	closed(t, r.Context().Done(), "its ctx ends")
	require.ErrorIs(t, r.Err(), schedlock.ErrTooLong)
	a.client.Heal()
	require.ErrorIs(t, got(t, done, "it returns").err, schedlock.ErrTooLong)
}

// J17: a thousand ticks leave no goroutine, lease or watch behind, and as many records as are
// to be kept.
func TestManyTicks(t *testing.T) {
	if testing.Short() {
		t.Skip("it goes through a thousand ticks: 3 s, and more with the race detector")
	}
	t.Parallel()
	f := own(t)
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	a := f.instance(nil, nil)
	knows := func(known bool) {
		require.Eventually(t, func() bool {
			others := a.Clocks()
			return len(others) > 0 && (others[0].Known || !known)
		}, soon, 20*time.Millisecond)
	}
	// It learns another's time from an event alone, so let it first be seen to watch.
	early := f.instance(nil, nil)
	knows(false)
	require.NoError(t, early.sess.Close(ctx))
	b := f.instance(nil, nil)
	knows(true)
	round := func(n int) {
		var wg sync.WaitGroup
		for _, in := range []instance{a, b} {
			wg.Go(func() {
				if _, err := in.Do(ctx, "job", nothing, schedlock.Tick(tick(n))); err != nil {
					t.Error(err)
				}
				if n%20 > 0 {
					return
				}
				if _, err := in.Do(ctx, "held", nothing, schedlock.Tick(tick(n)), schedlock.AtLeast(time.Millisecond)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	for n := range 20 {
		round(n)
	}
	for n := range 1000 {
		round(20 + n)
	}
	// Trimming is for the one that knows the other's time.
	_, err := a.Do(ctx, "job", nothing, schedlock.Tick(tick(1020)))
	require.NoError(t, err)
	f.NoKeys("/cooldown")
	require.Empty(t, f.Keys("/lock"))
	require.Len(t, f.Keys("/job/run/"), 20)
	require.Len(t, f.Keys("/job/floor/"), 1)
	for _, in := range []instance{a, b} {
		require.Eventually(t, func() bool {
			return maps.Equal(in.client.OpenStreams(), map[string]int{"LeaseKeepAlive": 1, "Watch": 1})
		}, soon, 10*time.Millisecond, "%v", in.client.OpenStreams())
	}
	require.Eventually(t, func() bool {
		leases, err := f.Client().Leases(ctx)
		return err == nil && len(leases.Leases) <= 4 // the sessions', and those kept for the next AtLeast
	}, soon, 10*time.Millisecond)
}

// Close waits for a run that was begun for a missed tick, as for any other.
func TestCloseWaitsForACatchUp(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	_, err := a.Do(ctx, "job", nothing, schedlock.Tick(anHourAgo), schedlock.Planned(grid(time.Minute), 0))
	require.NoError(t, err)
	started, end := make(chan *schedlock.Run, 1), make(chan struct{})
	job, err := a.Job("job", grid(time.Minute), func(ctx context.Context, r *schedlock.Run) error {
		started <- r
		select {
		case <-end:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, schedlock.OnMisfire(schedlock.Once))
	require.NoError(t, err)
	job.Next(time.Now())
	r := got(t, started, "what was missed")
	shut := make(chan error, 1)
	go func() { shut <- a.sess.Close(ctx) }()
	require.Eventually(t, func() bool {
		_, err := a.Do(ctx, "other", nothing)
		return err != nil
	}, soon, 20*time.Millisecond, "it closes")
	require.NoError(t, r.Context().Err())
	close(end)
	require.NoError(t, got(t, shut, "Close returns"))
	h, err := b.Get(ctx, "job", r.Tick())
	require.NoError(t, err)
	require.Equal(t, schedlock.RunDone, h.State)
}

// A lease for AtLeast that was not needed goes with the session, or with the error.
func TestLosersLeaveNoLease(t *testing.T) {
	t.Parallel()
	f := own(t)
	ctx := ctxT(t)
	a := f.instance(nil, nil)
	day := []schedlock.CallOption{schedlock.AtLeast(24 * time.Hour), schedlock.AtMost(24 * time.Hour)}
	_, err := a.Do(ctx, "held", nothing, append(day, schedlock.Tick(tick(0)))...)
	require.NoError(t, err)
	_, err = a.Do(ctx, "other", nothing, schedlock.Tick(tick(0)))
	require.NoError(t, err)
	leases := func() int {
		all, err := f.Client().Leases(ctx)
		require.NoError(t, err)
		return len(all.Leases)
	}
	before := leases()
	b := f.instance(nil, nil)
	res, err := b.Do(ctx, "held", nothing, append(day, schedlock.Tick(tick(1)))...)
	require.NoError(t, err)
	require.Equal(t, schedlock.StillRunning, res.Outcome)
	_, err = b.Do(ctx, "other", nothing, append(day, schedlock.Tick(tick(1)))...)
	var other *schedlock.SettingsError
	require.ErrorAs(t, err, &other)
	require.Eventually(t, func() bool { return leases() == before+2 }, soon, 20*time.Millisecond, "the session's, and one that is held ready")
	require.NoError(t, b.sess.Close(ctx))
	require.Equal(t, before, leases())
}

// The lease for AtLeast of a claim that starts nothing ends with it: of one whose caller
// has given up, and of one that was answered when its session had been lost. Those of calls
// that were not needed are held ready, and end with the session.
func TestClaimsThatStartNothingLeaveNoLease(t *testing.T) {
	t.Parallel()
	day := []schedlock.CallOption{schedlock.AtLeast(24 * time.Hour), schedlock.AtMost(24 * time.Hour)}
	on := func(t *testing.T, so *concurrency.SessionOptions) (fixture, instance, func(want int)) {
		f := own(t)
		return f, f.instance(so, nil), func(want int) {
			t.Helper()
			require.Eventually(t, func() bool {
				all, err := f.Client().Leases(ctxT(t))
				return err == nil && len(all.Leases) == want
			}, soon, 20*time.Millisecond)
		}
	}
	t.Run("given up", func(t *testing.T) {
		t.Parallel()
		f, a, leases := on(t, nil)
		inj := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Skip: 1, Do: embedtest.HoldResponse})
		ctx, cancel := context.WithCancel(ctxT(t))
		_, done := do(ctx, a.Locker, "job", nil, append(day, schedlock.Tick(tick(1)))...)
		require.NoError(t, inj.WaitHit(ctx))
		cancel()
		require.ErrorIs(t, got(t, done, "the call returns").err, context.Canceled)
		require.NoError(t, inj.Release())
		f.NoKeys("/cooldown")
		leases(1) // the session's
	})
	t.Run("given up before the lease is granted", func(t *testing.T) { // A349
		t.Parallel()
		_, a, leases := on(t, nil)
		inj := a.client.Inject(embedtest.Fault{Method: "LeaseGrant", Do: embedtest.HoldResponse})
		ctx, cancel := context.WithCancel(ctxT(t))
		_, done := do(ctx, a.Locker, "job", nil, append(day, schedlock.Tick(tick(1)))...)
		require.NoError(t, inj.WaitHit(ctx))
		leases(2)
		cancel()
		require.ErrorIs(t, got(t, done, "the call returns").err, context.Canceled)
		leases(1) // the session's
		require.NoError(t, inj.Release())
		leases(1)
	})
	t.Run("granted by several copies", func(t *testing.T) { // A349
		t.Parallel()
		_, a, leases := on(t, nil)
		inj := a.client.Inject(embedtest.Fault{Method: "LeaseGrant", Do: embedtest.DropResponse, Times: 2})
		end := make(chan struct{})
		started, done := do(ctxT(t), a.Locker, "job", end, append(day, schedlock.Tick(tick(1)))...)
		got(t, started, "it starts")
		require.Equal(t, 2, inj.Hits())
		leases(2) // the session's, and that of the cooldown
		close(end)
		require.NoError(t, got(t, done, "it ends").err)
	})
	t.Run("session lost", func(t *testing.T) {
		t.Parallel()
		f, a, leases := on(t, nil)
		ctx := ctxT(t)
		lease := a.sess.Lease()
		inj := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Skip: 1, Do: embedtest.HoldResponse})
		end := make(chan struct{})
		started, done := do(ctx, a.Locker, "job", end, append(day, schedlock.Tick(tick(1)))...)
		require.NoError(t, inj.WaitHit(ctx))
		require.NoError(t, f.RevokeLease(ctx, lease))
		require.Eventually(t, func() bool { return a.sess.Lease() != lease && a.sess.Lease() != 0 }, soon, 20*time.Millisecond)
		require.NoError(t, inj.Release())
		got(t, started, "it starts on the next lease")
		leases(2) // the session's, and that of the hold
		close(end)
		require.NoError(t, got(t, done, "it ends").err)
	})
	t.Run("not needed", func(t *testing.T) {
		t.Parallel()
		f, a, leases := on(t, nil)
		ctx := ctxT(t)
		b := f.instance(nil, nil)
		_, err := b.Do(ctx, "job", nothing, append(day, schedlock.Tick(tick(0)))...)
		require.NoError(t, err)
		leases(3) // two sessions', and that of the hold
		inj := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Times: 2, Do: embedtest.HoldRequest})
		_, one := do(ctx, a.Locker, "job", nil, append(day, schedlock.Tick(tick(1)))...)
		_, two := do(ctx, a.Locker, "job", nil, append(day, schedlock.Tick(tick(2)))...)
		require.Eventually(t, func() bool { return inj.Hits() == 2 }, soon, 20*time.Millisecond)
		leases(5)
		require.NoError(t, inj.Release())
		require.Equal(t, schedlock.StillRunning, got(t, one, "the first").res.Outcome)
		require.Equal(t, schedlock.StillRunning, got(t, two, "the second").res.Outcome)
		leases(5) // both are held ready
		require.NoError(t, a.sess.Close(ctx))
		leases(2)
	})
}

// Callers that are refused at the same time share few leases for AtLeast, and all go with
// the session.
func TestSpareLeasesOfManyCallers(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts an etcd of its own")
	}
	t.Parallel()
	f := own(t)
	ctx := ctxT(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	day := []schedlock.CallOption{schedlock.AtLeast(24 * time.Hour), schedlock.AtMost(24 * time.Hour)}
	end := make(chan struct{})
	started, done := do(ctx, b.Locker, "job", end, schedlock.AtMost(24*time.Hour), schedlock.AtLeast(24*time.Hour))
	got(t, started, "the run that is in the way")
	leases := func() int {
		resp, err := f.Client().Leases(ctx)
		require.NoError(t, err)
		return len(resp.Leases)
	}
	before := leases() // two sessions and the hold
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for range 10 {
				res, err := a.Do(ctx, "job", nothing, day...)
				assert.NoError(t, err)
				assert.Equal(t, schedlock.StillRunning, res.Outcome)
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, leases(), before+4, "one for each claim that may be on its way at once")
	require.NoError(t, a.sess.Close(ctx))
	require.Equal(t, before-1, leases())
	close(end)
	got(t, done, "the run")
}
