package schedlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
	"github.com/etcdkit/etcdkit/schedlock/gocronlock"
)

var errOwn = errors.New("the function's own")

// patient has a lease that outlives the test, and a short wait for etcd's confirmation.
func patient() *concurrency.SessionOptions {
	return &concurrency.SessionOptions{TTL: 300 * time.Second, ReleaseTimeout: 50 * time.Millisecond}
}

func unconfirmed(t *testing.T, res schedlock.Result) *schedlock.UnconfirmedError {
	t.Helper()
	var u *schedlock.UnconfirmedError
	require.ErrorAs(t, res.Unconfirmed, &u)
	require.ErrorIs(t, u, schedlock.ErrUnconfirmed)
	require.NotErrorIs(t, u, schedlock.ErrLost)
	require.Equal(t, []any{res.Job, res.Attempt, res.Token}, []any{u.Job, u.Attempt, u.Token})
	return u
}

// S5: etcd becomes unreachable while the function works, and the run is active when it returns. Its result
// is returned as it is, after ReleaseTimeout and not at the end of the lease, and the end is
// reported as not confirmed, never as lost. When etcd is back it is recorded.
func TestOutageWhenTheRunIsDone(t *testing.T) {
	t.Parallel()
	type doneCall struct {
		res schedlock.Result
		err error
	}
	for name, call := range map[string]func(t *testing.T, in instance, fn schedlock.Func){
		"Do": func(t *testing.T, in instance, fn schedlock.Func) {
			_, _ = in.Do(ctxT(t), "job", fn)
		},
		"Job.Run": func(t *testing.T, in instance, fn schedlock.Func) {
			job, err := in.Job("job", grid(time.Hour), fn)
			require.NoError(t, err)
			job.Run()
		},
		"Trigger": func(t *testing.T, in instance, fn schedlock.Func) {
			job, err := in.Job("job", grid(time.Hour), fn)
			require.NoError(t, err)
			_, _ = job.Trigger(ctxT(t))
		},
		"gocron": func(t *testing.T, in instance, fn schedlock.Func) {
			l, err := gocronlock.New[gocronLock](in.Locker, time.Hour)
			require.NoError(t, err)
			lock, err := l.Lock(ctxT(t), "job")
			require.NoError(t, err)
			r, ok := l.Running("job")
			require.True(t, ok)
			err = fn(r.Context(), r)
			if err != nil {
				l.Fail("job", err)
			}
			require.Equal(t, err, lock.Unlock(ctxT(t)))
		},
	} {
		for want, own := range map[schedlock.Outcome]error{schedlock.Ran: nil, schedlock.Failed: errOwn} {
			t.Run(name+", "+want.String(), func(t *testing.T) {
				t.Parallel()
				f := shared(t)
				ctx := ctxT(t)
				done := make(chan doneCall, 1)
				in, lines := f.logged(patient(), &schedlock.Options{Done: func(res schedlock.Result, err error) { done <- doneCall{res, err} }})
				other := f.instance(nil, nil)
				var run *schedlock.Run
				var returned time.Time
				call(t, in, func(_ context.Context, r *schedlock.Run) error {
					run = r
					in.client.Cut()
					require.NoError(t, r.Err())
					returned = time.Now()
					return own
				})
				require.Less(t, time.Since(returned), time.Minute, "not the lease's 300 s")
				x := got(t, done, "Options.Done is called")
				require.Equal(t, []any{want, run.Token(), own}, []any{x.res.Outcome, x.res.Token, x.err})
				require.ErrorContains(t, unconfirmed(t, x.res), "no answer within SessionOptions.ReleaseTimeout (50ms)")
				require.ErrorIs(t, run.Err(), schedlock.ErrReturned)
				const text = "the end of a run is not confirmed by etcd"
				if name == "Job.Run" || name == "gocron" {
					require.Contains(t, messages(lines), text)
				}
				require.NotContains(t, messages(lines), "a run was lost; another run may have started before its function returned")

				rec, err := other.Get(ctx, "job", x.res.Tick)
				require.NoError(t, err)
				require.Equal(t, schedlock.RunActive, rec.State, "as others see it")
				in.client.Heal()
				require.Eventually(t, func() bool {
					rec, err := in.Get(ctx, "job", x.res.Tick)
					return err == nil && rec.State == map[bool]schedlock.State{true: schedlock.RunDone, false: schedlock.RunFailed}[own == nil]
				}, soon, 20*time.Millisecond, "it was recorded in the background")
				require.NoError(t, in.sess.Close(ctx))
			})
		}
	}
}

// S5: while only the record of the end is refused, this process sees the run as ended and not
// confirmed, and does not start its tick again.
func TestUnconfirmedEndAsSeenHere(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	in, other := f.instance(patient(), nil), f.instance(nil, nil)
	silent := in.client.Inject(embedtest.Fault{Method: "Txn", Match: isFinish, Times: -1, Do: embedtest.FailWith})
	opts := []schedlock.CallOption{schedlock.Tick(tick(1)), schedlock.Retries(3)}
	res, err := in.Do(ctx, "job", func(context.Context, *schedlock.Run) error { return errOwn }, opts...)
	require.Equal(t, errOwn, err)
	require.Equal(t, schedlock.Failed, res.Outcome)
	unconfirmed(t, res)
	rec, err := in.Get(ctx, "job", tick(1))
	require.NoError(t, err)
	require.Equal(t, []any{schedlock.RunUnconfirmed, errOwn.Error(), false}, []any{rec.State, rec.Error, rec.End.IsZero()})
	st, err := in.Status(ctx, "job")
	require.NoError(t, err)
	require.Equal(t, schedlock.RunUnconfirmed, st.Last.State)
	h, err := other.History(ctx, "job")
	require.NoError(t, err)
	require.Equal(t, schedlock.RunActive, h[0].State)

	again, err := in.Do(ctx, "job", nothing, opts...)
	require.NoError(t, err)
	require.Equal(t, schedlock.Claimed, again.Outcome)
	silent.Remove()
	f.NoKeys("/lock")
	h, err = in.History(ctx, "job")
	require.NoError(t, err)
	require.Equal(t, schedlock.RunFailed, h[0].State)
}
