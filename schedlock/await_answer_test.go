package schedlock_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

// refuseEnds has etcd refuse to record the ends of an instance's runs.
func (in instance) refuseEnds() *embedtest.Injection {
	return in.client.Inject(embedtest.Fault{Method: "Txn", Match: isFinish, Times: -1, Do: embedtest.FailWith, Err: rpctypes.ErrGRPCPermissionDenied})
}

// A251: the job is unlocked while a call waits for the record of its failure. The run was lost, not confirmed.
func TestUnlockedBeforeTheFailureIsRecorded(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	in, other := f.instance(patient(), nil), f.instance(nil, nil)
	refused := in.refuseEnds()
	fn := failing{fails: 1}
	end := make(chan answer, 1)
	go func() {
		res, err := in.Do(ctx, "job", fn.run, schedlock.Tick(tick(1)), schedlock.RetryFailed(3, pause))
		end <- answer{res, err}
	}()
	require.Eventually(t, func() bool {
		rec, err := in.Get(ctx, "job", tick(1))
		return err == nil && rec.State == schedlock.RunUnconfirmed
	}, soon, 20*time.Millisecond)
	require.NoError(t, other.Unlock(ctx, "job", "for the test"))
	refused.Remove()
	a := got(t, end, "the call returns")
	require.Equal(t, []any{schedlock.Lost, 1}, []any{a.res.Outcome, a.res.Attempt})
	require.ErrorIs(t, a.err, errDown)
	require.ErrorIs(t, a.err, schedlock.ErrLost)
	require.NoError(t, a.res.Unconfirmed)
	require.EqualValues(t, 1, fn.calls.Load())
	rec, err := in.Get(ctx, "job", tick(1))
	require.NoError(t, err)
	require.Equal(t, schedlock.RunUnlocked, rec.State)
}

// A251: etcd refuses the record of a failure for long. The call reports that at once, and waits no longer than another
// attempt could start.
func TestWaitForTheRecordOfAFailure(t *testing.T) {
	t.Parallel()
	const text, left = "the end of a run is not confirmed by etcd", 300 * time.Millisecond
	for name, c := range map[string]struct {
		in    time.Duration // after the fire time: when the run fails
		late  time.Duration // LateBy
		pause time.Duration
		waits bool
	}{
		"until LateBy":                {time.Minute - left, time.Minute, pause, true},
		"the pause ends after LateBy": {time.Second, time.Minute, time.Minute, false},
		"until AtMost is too long":    {24*time.Hour - time.Minute - left, 0, pause, true},
		"the pause ends after that":   {24*time.Hour - 2*time.Minute, 0, 2 * time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			h := clock(friday)
			in, lines := f.logged(patient(), h.options())
			in.refuseEnds()
			fn := failing{fails: 9}
			opts := []schedlock.JobOption{schedlock.AtMost(time.Minute), schedlock.RetryFailed(2, c.pause)}
			if c.late > 0 {
				opts = append(opts, schedlock.LateBy(c.late))
			}
			job, err := in.Job("job", nine{}, func(ctx context.Context, r *schedlock.Run) error {
				h.set(friday.Add(c.in))
				return fn.run(ctx, r)
			}, opts...)
			require.NoError(t, err)
			end := make(chan answer, 1)
			go func() { res, err := job.RunContext(ctxT(t)); end <- answer{res, err} }()
			a := got(t, end, "the call returns")
			require.Equal(t, []any{schedlock.Failed, 1}, []any{a.res.Outcome, a.res.Attempt})
			require.ErrorIs(t, a.err, errDown)
			unconfirmed(t, a.res)
			require.EqualValues(t, 1, fn.calls.Load())
			warned := lines.FilterMessage(text).All()
			if !c.waits {
				require.Empty(t, warned, "the caller has the result")
				return
			}
			require.Len(t, warned, 1)
			require.Equal(t, []any{"job", "failed", errDown.Error()}, []any{warned[0].ContextMap()["job"], warned[0].ContextMap()["outcome"], warned[0].ContextMap()["error"]})
			require.Contains(t, warned[0].ContextMap()["unconfirmed"], "permission denied")
		})
	}
}

// A251: a function that ends its goroutine leaves none that could make another attempt: nothing waits for the record.
func TestNoWaitAfterGoexit(t *testing.T) {
	t.Parallel()
	f := shared(t)
	done := make(calls, 1)
	in := f.instance(patient(), done.options())
	in.refuseEnds()
	go func() {
		_, _ = in.Do(ctxT(t), "job", func(context.Context, *schedlock.Run) error { runtime.Goexit(); return nil }, schedlock.RetryFailed(2, pause))
	}()
	a := got(t, done, "the end of the run")
	require.Equal(t, schedlock.Failed, a.res.Outcome)
	unconfirmed(t, a.res)
}
