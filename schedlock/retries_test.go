package schedlock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/schedlock"
	"github.com/etcdkit/etcdkit/schedlock/gocronlock"
)

// A run is lost, and several calls are on standby: one starts the tick again, the others report that it was
// claimed. The call whose run was lost reports that run.
func TestOneOfSeveralOnStandby(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	opts := []schedlock.CallOption{schedlock.Tick(tick(1)), schedlock.Retries(1)}
	a := f.instance(nil, nil)
	resume := make(chan struct{})
	runs, done := make(chan *schedlock.Run, 1), make(chan answer, 1)
	go func() {
		res, err := a.Do(ctx, "job", func(ctx context.Context, r *schedlock.Run) error {
			runs <- r
			<-ctx.Done()
			<-resume
			return errors.New("too late")
		}, opts...)
		done <- answer{res, err}
	}()
	old := got(t, runs, "it starts")
	end := make(chan struct{})
	again := make(chan *schedlock.Run, 10)
	answers := make(chan answer, 10)
	const others = 4
	for range others {
		in := f.instance(nil, nil)
		in.client.ResetRequests()
		go func() {
			res, err := in.Do(ctx, "job", func(_ context.Context, r *schedlock.Run) error { again <- r; <-end; return nil }, opts...)
			answers <- answer{res, err}
		}()
		require.Eventually(t, func() bool { return in.client.Requests()["Txn"] > 0 }, soon, 20*time.Millisecond, "it is on standby")
	}
	require.NoError(t, f.RevokeLease(ctx, a.sess.Lease()))
	second := got(t, again, "the second attempt")
	require.Equal(t, 2, second.Attempt())
	require.Greater(t, second.Token(), old.Token())
	closed(t, old.Context().Done(), "the first has ended")
	close(resume)
	x := got(t, done, "the first call returns")
	require.ErrorIs(t, x.err, schedlock.ErrLost)
	require.ErrorContains(t, x.err, "too late")
	require.Equal(t, []any{schedlock.Lost, 1, old.Token()}, []any{x.res.Outcome, x.res.Attempt, x.res.Token})
	close(end)
	outcomes := map[schedlock.Outcome]int{}
	for range others {
		x := got(t, answers, "a call returns")
		require.NoError(t, x.err)
		outcomes[x.res.Outcome]++
	}
	require.Equal(t, map[schedlock.Outcome]int{schedlock.Ran: 1, schedlock.Claimed: others - 1}, outcomes)
	require.Empty(t, again)
}

// A call with a period has the period for LateBy: a loss that is noticed after that is not made
// good, whatever Retries says. With more time for it, it is.
func TestRetriesNeedLateBy(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	const every = time.Second
	now := clock(time.Now().Truncate(every))
	a, b := f.instance(nil, now.options()), f.instance(nil, now.options())
	started, done := do(ctx, a.Locker, "job", nil, schedlock.Every(every), schedlock.Retries(1))
	got(t, started, "it starts")
	locker := func(opts ...schedlock.Option) *gocronlock.Locker[gocronLock] {
		l, err := gocronlock.New[gocronLock](b.Locker, every, append(opts, schedlock.Retries(1))...)
		require.NoError(t, err)
		return l
	}
	_, err := locker().Lock(ctx, "job")
	var skip *gocronlock.SkippedError
	require.ErrorAs(t, err, &skip)
	require.Equal(t, schedlock.Late, skip.Result.Outcome, "it was on standby until the period was over")

	a.client.Cut() // it cannot come back at once
	require.NoError(t, f.RevokeLease(ctx, a.sess.Lease()))
	patient := locker(schedlock.LateBy(time.Hour))
	lock, err := patient.Lock(ctx, "job")
	require.NoError(t, err)
	r, ok := patient.Running("job")
	require.True(t, ok)
	require.Equal(t, 2, r.Attempt())
	require.NoError(t, lock.Unlock(ctx))
	a.client.Heal()
	require.ErrorIs(t, got(t, done, "it returns").err, schedlock.ErrLost)
}

// A later tick was claimed: the one that was lost is not started again.
func TestNoRetryBehindALaterTick(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	started, done := do(ctx, a.Locker, "job", nil, schedlock.Tick(tick(1)), schedlock.Retries(1))
	r := got(t, started, "it starts")
	lease := a.sess.Lease()
	a.client.Cut() // it cannot come back at once
	require.NoError(t, f.RevokeLease(ctx, lease))
	res, err := b.Do(ctx, "job", nothing, schedlock.Tick(tick(2)), schedlock.Retries(1))
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, res.Outcome)
	res, err = b.Do(ctx, "job", nothing, schedlock.Tick(tick(1)), schedlock.Retries(1))
	require.NoError(t, err)
	require.Equal(t, schedlock.Late, res.Outcome)
	a.client.Heal()
	x := got(t, done, "it returns")
	require.ErrorIs(t, x.err, schedlock.ErrLost)
	require.Equal(t, []any{schedlock.Lost, r.Token()}, []any{x.res.Outcome, x.res.Token})
}

// AtLeast holds for attempts as well: the second does not start before it has passed.
func TestRetryAfterAtLeast(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	const least = time.Second
	opts := []schedlock.CallOption{schedlock.Tick(tick(1)), schedlock.Retries(1), schedlock.AtLeast(least)}
	begun := time.Now()
	started, own := do(ctx, a.Locker, "job", nil, opts...)
	r := got(t, started, "it starts")
	again, done := do(ctx, b.Locker, "job", nil, opts...)
	require.NoError(t, f.RevokeLease(ctx, a.sess.Lease()))
	var second *schedlock.Run
	select { // the first of the two
	case second = <-again:
	case second = <-started:
		done = own
	case <-time.After(soon):
		require.FailNow(t, "there is no second attempt")
	}
	require.GreaterOrEqual(t, time.Since(begun), least)
	require.Equal(t, 2, second.Attempt())
	require.Greater(t, second.Token(), r.Token())
	require.NoError(t, b.Unlock(ctx, "job", "done with it"))
	require.ErrorIs(t, got(t, done, "it ends").err, schedlock.ErrUnlocked)
}

// A run that ended with an error is not repeated, whatever Retries says.
func TestErrorsAreNotRetried(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	opts := []schedlock.CallOption{schedlock.Tick(tick(1)), schedlock.Retries(5)}
	_, err := a.Do(ctx, "job", func(context.Context, *schedlock.Run) error { return errors.New("no") }, opts...)
	require.EqualError(t, err, "no")
	for _, in := range []instance{a, b} {
		res, err := in.Do(ctx, "job", nothing, opts...)
		require.NoError(t, err)
		require.Equal(t, schedlock.Claimed, res.Outcome)
	}
}

// Two calls without a tick in the same millisecond: one runs, the other returns at once,
// also if ticks may be started again.
func TestWithoutATickAtTheSameTime(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	now := time.Now().Truncate(time.Second)
	o := &schedlock.Options{Now: func() time.Time { return now }}
	a, b := f.instance(nil, o), f.instance(nil, o)
	end := make(chan struct{})
	started, done := do(ctx, a.Locker, "job", end, schedlock.Retries(1))
	got(t, started, "it starts")
	res, err := b.Do(ctx, "job", nothing, schedlock.Retries(1))
	require.NoError(t, err)
	require.Equal(t, schedlock.StillRunning, res.Outcome)
	require.Equal(t, a.sess.Owner(), res.Owner)
	close(end)
	require.NoError(t, got(t, done, "it ends").err)
	for _, in := range []instance{a, b, b, a} {
		res, err := in.Do(ctx, "job", nothing, schedlock.Retries(1))
		require.NoError(t, err)
		require.Equal(t, schedlock.Ran, res.Outcome)
	}
}

// A run that sees itself that AtMost has passed, and hangs then, keeps the job no longer
// than others do.
func TestAtMostSeenByTheRun(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a := f.instance(&concurrency.SessionOptions{TTL: time.Minute, Margin: 100 * time.Millisecond}, nil)
	stuck := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(stuck)
	wg.Go(func() {
		_, _ = a.Do(ctx, "job", func(_ context.Context, r *schedlock.Run) error {
			for r.Err() == nil {
			}
			<-stuck
			return nil
		}, schedlock.Tick(tick(1)), schedlock.AtMost(20*time.Millisecond))
	})
	require.Eventually(t, func() bool {
		r, err := a.Get(ctx, "job", tick(1))
		return err == nil && r.State == schedlock.RunFailed
	}, soon, 20*time.Millisecond)
	require.Empty(t, f.Keys("/lock"))
}

// Extend moves the end of AtMost, in both directions.
func TestExtend(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a := f.instance(&concurrency.SessionOptions{TTL: time.Minute}, nil)
	started, done := do(ctx, a.Locker, "job", nil, schedlock.Tick(tick(1)), schedlock.AtMost(time.Hour))
	r := got(t, started, "it starts")
	require.NoError(t, r.Extend(15*time.Second))
	require.LessOrEqual(t, time.Until(r.Deadline()), 15*time.Second)
	before := r.Deadline()
	require.NoError(t, r.Extend(time.Hour))
	require.True(t, r.Deadline().After(before))
	require.NoError(t, r.Extend(time.Millisecond))
	require.ErrorIs(t, got(t, done, "it ends").err, schedlock.ErrTooLong)
	require.ErrorIs(t, r.Extend(time.Hour), schedlock.ErrTooLong)
	require.ErrorIs(t, r.Check(ctx), schedlock.ErrTooLong)
	require.ErrorIs(t, context.Cause(r.Context()), schedlock.ErrTooLong)
}
