package schedlock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A paused job is started by no process until Resume; an active run continues.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	end := make(chan struct{})
	started, done := do(ctx, a.Locker, "job", end, schedlock.Tick(tick(1)), schedlock.AtLeast(time.Minute))
	r := got(t, started, "it starts")
	require.NoError(t, b.Pause(ctx, "job", "first"))
	require.NoError(t, b.Pause(ctx, "job", "moving house"))
	require.NoError(t, r.Check(ctx))
	close(end)
	require.Equal(t, schedlock.Ran, got(t, done, "it ends").res.Outcome)
	res, err := a.Do(ctx, "job", nothing, schedlock.Tick(tick(2)), schedlock.AtLeast(time.Minute))
	require.NoError(t, err)
	require.Equal(t, []any{schedlock.Paused, b.sess.Owner()}, []any{res.Outcome, res.Paused.By}, "which process has paused it")
	st, err := a.Status(ctx, "job")
	require.NoError(t, err)
	require.NotNil(t, st.Paused)
	require.Equal(t, "moving house", st.Paused.Reason)
	require.Equal(t, b.sess.Owner(), st.Paused.By)
	require.True(t, st.CoolingDown)
	require.False(t, st.Running)
	require.Equal(t, schedlock.RunDone, st.Last.State)
	require.Contains(t, st.Settings, "AtLeast 1m")
	require.NoError(t, b.sess.Close(ctx), "a pause outlives who has made it")
	require.NoError(t, a.Unlock(ctx, "job", ""), "AtLeast ends")
	res, err = a.Do(ctx, "job", nothing, schedlock.Tick(tick(2)), schedlock.AtLeast(time.Minute))
	require.NoError(t, err)
	require.Equal(t, schedlock.Paused, res.Outcome)
	require.NoError(t, a.Resume(ctx, "job"))
	require.NoError(t, a.Resume(ctx, "job"), "it is no error if it is not paused")
	res, err = a.Do(ctx, "job", nothing, schedlock.Tick(tick(2)), schedlock.AtLeast(time.Minute))
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, res.Outcome, "a pause is asked for each time")
}

// A run whose process has missed the event of an Unlock ends with ErrUnlocked all the same when it asks etcd, as after each
// interruption of a watch: an operator's act is no loss.
func TestUnlockWithoutItsEvent(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	end := make(chan struct{})
	started, done := do(ctx, a.Locker, "job", end, schedlock.Tick(tick(1)))
	r := got(t, started, "it starts")
	a.client.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.DropResponse, Times: -1})
	require.NoError(t, b.Unlock(ctx, "job", "it hangs"))
	require.ErrorIs(t, r.Check(ctx), schedlock.ErrUnlocked)
	close(end)
	res := got(t, done, "it ends")
	require.Equal(t, schedlock.Lost, res.res.Outcome)
	require.ErrorIs(t, res.err, schedlock.ErrUnlocked)
	require.ErrorContains(t, res.err, "it hangs")
}

// Watch yields each start and end, and ends when its ctx or its loop does.
func TestWatch(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx, cancel := context.WithCancel(ctxT(t))
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	records, ended := make(chan schedlock.Record, 100), make(chan error, 1)
	go func() {
		for r, err := range b.Watch(ctx, "job") {
			if err != nil {
				ended <- err
				return
			}
			records <- r
		}
	}()
	n := 0
	for len(records) == 0 { // until the watch is open
		n++
		_, err := a.Do(ctx, "job", nothing, schedlock.Tick(tick(n)))
		require.NoError(t, err)
	}
	_, err := a.Do(ctx, "job", nothing, schedlock.Tick(tick(n+1)))
	require.NoError(t, err)
	var states []schedlock.State
	for len(states) < 2 {
		r := got(t, records, "a record")
		if r.Tick.Equal(tick(n + 1)) {
			states = append(states, r.State)
			require.Equal(t, a.sess.Owner(), r.Owner)
		}
	}
	require.Equal(t, []schedlock.State{schedlock.RunActive, schedlock.RunDone}, states)
	cancel()
	require.ErrorIs(t, got(t, ended, "it ends"), context.Canceled)
	go func() {
		for _, err := range b.Watch(ctxT(t), "job") {
			ended <- err
		}
	}()
	require.NoError(t, b.sess.Close(ctxT(t)))
	require.ErrorIs(t, got(t, ended, "it ends with its session"), schedlock.ErrClosed)
	for range a.Watch(ctx, "job") {
		break // a loop that was left is not called again
	}
}

// Jobs returns each name once, whatever is in it, and however many keys there are.
func TestJobs(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a := f.instance(nil, nil)
	names, err := a.Jobs(ctx)
	require.NoError(t, err)
	require.Empty(t, names)
	want := []string{"a", "a b", "b%2f", "größe"}
	for _, name := range want {
		for n := range 2 {
			_, err := a.Do(ctx, name, nothing, schedlock.Tick(tick(n)))
			require.NoError(t, err)
		}
	}
	for n := range 15 { // more than one page of one job
		var puts []clientv3.Op
		for m := range 100 {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("%sjob/a/x/%02d%02d", a.sess.NamespacePrefix(), n, m), ""))
		}
		_, err := f.Client().Txn(ctx).Then(puts...).Commit()
		require.NoError(t, err)
	}
	names, err = a.Jobs(ctx)
	require.NoError(t, err)
	require.ElementsMatch(t, want, names)
}

// Get and Status report an active run, and that it is lost when its lock is gone.
func TestGetAndStatus(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	started, _ := do(ctx, a.Locker, "job", nil, schedlock.Tick(tick(1)))
	got(t, started, "it starts")
	r, err := b.Get(ctx, "job", tick(1).In(time.FixedZone("far", 3600)))
	require.NoError(t, err)
	require.Equal(t, []any{schedlock.RunActive, a.sess.Owner(), 1, time.Time{}}, []any{r.State, r.Owner, r.Attempt, r.End})
	require.WithinDuration(t, time.Now(), r.Start, soon)
	require.True(t, r.Tick.Equal(tick(1)))
	require.Equal(t, time.UTC, r.Tick.Location())
	st, err := b.Status(ctx, "job")
	require.NoError(t, err)
	require.True(t, st.Running)
	_, err = b.Get(ctx, "job", tick(2))
	require.ErrorIs(t, err, schedlock.ErrGone)
	require.NoError(t, f.RevokeLease(ctx, a.sess.Lease()))
	r, err = b.Get(ctx, "job", tick(1))
	require.NoError(t, err)
	require.Equal(t, schedlock.RunLost, r.State)
	st, err = b.Status(ctx, "job")
	require.NoError(t, err)
	require.False(t, st.Running)
}

// A late copy of a Pause does not pause a job that was resumed since, nor one of a Resume
// resume what was paused since.
func TestLateCopiesOfPauseAndResume(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a := f.instance(nil, nil)
	_, err := a.Do(ctx, "job", nothing, schedlock.Tick(tick(1)))
	require.NoError(t, err)
	paused := func() bool {
		st, err := a.Status(ctx, "job")
		require.NoError(t, err)
		return st.Paused != nil
	}
	twice := func() *embedtest.Injection {
		return a.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.Duplicate, Match: func(_ string, msg any) bool {
			r, ok := msg.(*etcdserverpb.TxnRequest)
			return ok && len(r.Success) > 0 && strings.HasSuffix(string(r.Success[0].GetRequestPut().GetKey()), "/operation")
		}})
	}
	pause := twice()
	require.NoError(t, a.Pause(ctx, "job", "twice"))
	require.True(t, paused())
	resume := twice()
	require.NoError(t, a.Resume(ctx, "job"))
	require.False(t, paused())
	require.NoError(t, pause.Release())
	require.False(t, paused())
	require.NoError(t, a.Pause(ctx, "job", "again"))
	require.NoError(t, resume.Release())
	require.True(t, paused())
	require.Equal(t, []int{1, 1}, []int{pause.Hits(), resume.Hits()})
}

// Pauses and resumes at the same time: each is done, and the last one that returned counts.
func TestPauseAndResumeAtTheSameTime(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a := f.instance(nil, nil)
	_, err := a.Do(ctx, "job", nothing, schedlock.Tick(tick(1)))
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 4 {
		in := f.instance(nil, nil)
		wg.Go(func() {
			for range 10 {
				assert.NoError(t, in.Pause(ctx, "job", "at the same time"))
				assert.NoError(t, in.Resume(ctx, "job"))
			}
		})
	}
	wg.Wait()
	st, err := a.Status(ctx, "job")
	require.NoError(t, err)
	require.Nil(t, st.Paused)
}

// With OnlyRun, Unlock ends the run that the caller has looked at, or nothing.
func TestUnlockOnlyRun(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	unlock := func(token int64) error { return b.Unlock(ctx, "job", "for a test", schedlock.OnlyRun(token)) }
	token := func() int64 {
		t.Helper()
		st, err := b.Status(ctx, "job")
		require.NoError(t, err)
		return st.Token
	}
	end := make(chan struct{}, 1)
	started, done := do(ctx, a.Locker, "job", end, schedlock.Tick(tick(1)), schedlock.AtLeast(time.Minute))
	first := got(t, started, "it starts")
	require.Equal(t, first.Token(), token())
	h, err := b.History(ctx, "job")
	require.NoError(t, err)
	require.Equal(t, first.Token(), h[0].Token)
	require.ErrorIs(t, unlock(0), schedlock.ErrNotRunning, "it does not only cool down")
	end <- struct{}{}
	got(t, done, "it ends")
	require.Zero(t, token())
	require.ErrorIs(t, unlock(first.Token()), schedlock.ErrNotRunning, "it has ended")
	st, err := b.Status(ctx, "job")
	require.NoError(t, err)
	require.True(t, st.CoolingDown, "the cooldown is not ended either")
	require.NoError(t, unlock(0))

	started, done = do(ctx, a.Locker, "job", end, schedlock.Tick(tick(2)), schedlock.AtLeast(time.Minute))
	second := got(t, started, "another one starts")
	for _, only := range []int64{first.Token(), 0} { // A427: the error said that the job is not running
		err := unlock(only)
		require.ErrorIs(t, err, schedlock.ErrNotRunning)
		require.ErrorContains(t, err, fmt.Sprintf("the active run has the token %d, not %d", second.Token(), only))
	}
	require.NoError(t, second.Check(ctx), "it goes on")
	require.NoError(t, unlock(second.Token()))
	require.ErrorIs(t, got(t, done, "it is lost").err, schedlock.ErrUnlocked)
	h, err = b.History(ctx, "job")
	require.NoError(t, err)
	require.Equal(t, []any{schedlock.RunUnlocked, int64(0), int64(0)}, []any{h[0].State, h[0].Token, h[1].Token})
	require.ErrorIs(t, b.Unlock(ctx, "job", "", nil), schedlock.ErrInvalid)
}

// A run that ends between the look at it and its removal keeps its cooldown if the caller means that run; otherwise
// Unlock looks again, and ends the cooldown.
func TestUnlockOfARunThatEnds(t *testing.T) {
	t.Parallel()
	for _, only := range []bool{true, false} {
		f := shared(t)
		ctx := ctxT(t)
		a, b := f.instance(nil, nil), f.instance(nil, nil)
		end := make(chan struct{}, 1)
		started, done := do(ctx, a.Locker, "job", end, schedlock.Tick(tick(1)), schedlock.AtLeast(time.Hour))
		run := got(t, started, "it starts")
		between := b.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.Pass, Match: isRemoval, Before: func() {
			end <- struct{}{}
			got(t, done, "it ends")
		}})
		if only {
			require.ErrorIs(t, b.Unlock(ctx, "job", "for a test", schedlock.OnlyRun(run.Token())), schedlock.ErrNotRunning)
		} else {
			require.NoError(t, b.Unlock(ctx, "job", "for a test"))
		}
		require.Equal(t, 1, between.Hits())
		st, err := b.Status(ctx, "job")
		require.NoError(t, err)
		require.Equal(t, only, st.CoolingDown)
	}
}

// A lock whose value is damaged is unlocked like any other, and its tick stays closed.
func TestUnlockDamaged(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	opts := []schedlock.CallOption{schedlock.Tick(tick(1)), schedlock.Retries(1)}
	returns := make(chan struct{})
	runs, done := make(chan *schedlock.Run, 10), make(chan error, 1)
	go func() {
		_, err := a.Do(ctx, "job", func(_ context.Context, r *schedlock.Run) error { runs <- r; <-returns; return nil }, opts...)
		done <- err
	}()
	got(t, runs, "it starts")
	_, err := f.Client().Put(ctx, f.Keys("/lock")[0], "{", clientv3.WithLease(a.sess.Lease()))
	require.NoError(t, err)
	require.NoError(t, b.Unlock(ctx, "job", "it looks odd"))
	close(returns)
	require.ErrorIs(t, got(t, done, "it ends"), schedlock.ErrLost)
	require.Empty(t, runs, "it is not started again")
	r, err := b.Get(ctx, "job", tick(1))
	require.NoError(t, err)
	require.Equal(t, []any{schedlock.RunUnlocked, 1, a.sess.Owner(), "it looks odd"}, []any{r.State, r.Attempt, r.Owner, r.Error})
	res, err := b.Do(ctx, "job", nothing, opts...)
	require.NoError(t, err)
	require.Equal(t, schedlock.Claimed, res.Outcome)
}

// The lock of a run is put by hand, without a lease: nothing would ever end it. The run
// is lost, and when its function has returned the job is free.
func TestOverwrittenLock(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	returns := make(chan struct{})
	runs, done := make(chan *schedlock.Run, 1), make(chan answer, 1)
	go func() {
		res, err := a.Do(ctx, "job", func(_ context.Context, r *schedlock.Run) error {
			runs <- r
			<-returns
			return nil
		}, schedlock.Tick(tick(1)))
		done <- answer{res, err}
	}()
	r := got(t, runs, "it starts")
	_, err := f.Client().Put(ctx, f.Keys("/lock")[0], "{")
	require.NoError(t, err)
	closed(t, r.Context().Done(), "it is lost")
	require.Len(t, f.Keys("/lock"), 1, "the function has not returned")
	close(returns)
	require.ErrorIs(t, got(t, done, "it ends").err, schedlock.ErrLost)
	f.NoKeys("/lock")
	h, err := b.Get(ctx, "job", tick(1))
	require.NoError(t, err)
	require.Equal(t, schedlock.RunLost, h.State)
	res, err := b.Do(ctx, "job", nothing, schedlock.Tick(tick(2)))
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, res.Outcome)
}

// The end of a run that was lost because its lock was deleted does not touch the lock of the
// next one.
func TestEndOfALostRunBehindTheNext(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	returns := make(chan struct{})
	runs, done := make(chan *schedlock.Run, 1), make(chan error, 1)
	go func() {
		_, err := a.Do(ctx, "job", func(_ context.Context, r *schedlock.Run) error { runs <- r; <-returns; return nil }, schedlock.Tick(tick(1)))
		done <- err
	}()
	r := got(t, runs, "it starts")
	_, err := f.Client().Delete(ctx, f.Keys("/lock")[0])
	require.NoError(t, err)
	closed(t, r.Context().Done(), "it is lost")
	end := make(chan struct{})
	next, nextDone := do(ctx, b.Locker, "job", end, schedlock.Tick(tick(2)))
	second := got(t, next, "the next one")
	close(returns)
	require.ErrorIs(t, got(t, done, "it ends"), schedlock.ErrLost)
	require.NoError(t, a.sess.Close(ctx), "which waits for what the end of the run has to do")
	require.NoError(t, second.Check(ctx))
	close(end)
	require.NoError(t, got(t, nextDone, "it ends").err)
}
