package schedlock_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A248: a panic is a failure after which the same call makes the next attempt. It continues after the last one.
func TestPanicIsTriedAgain(t *testing.T) {
	t.Parallel()
	for name, panics := range map[string]int64{"at first": 1, "each time": 9} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			var reported results
			o := clock(friday).options()
			o.Done = reported.done
			in, lines := f.logged(nil, o)
			var calls atomic.Int64
			job, err := in.Job("job", nine{}, func(context.Context, *schedlock.Run) error {
				if calls.Add(1) <= panics {
					panic("planned")
				}
				return nil
			}, schedlock.RetryFailed(2, pause), schedlock.AtMost(time.Minute))
			require.NoError(t, err)
			want := schedlock.Ran
			if panics == 1 {
				res, err := job.RunContext(ctx)
				require.NoError(t, err)
				require.Equal(t, 2, res.Attempt)
			} else {
				want = schedlock.Failed
				require.PanicsWithValue(t, "planned", func() { _, _ = job.RunContext(ctx) })
				require.EqualValues(t, 3, calls.Load())
			}
			require.Equal(t, []schedlock.Outcome{want}, reported.outcomes(), "once")
			again := lines.FilterMessageSnippet("a run failed, and may be tried again").All()
			require.Len(t, again, int(min(panics, 2)))
			require.Contains(t, again[0].ContextMap()["stack"].(string), "TestPanicIsTriedAgain")
			r, err := in.Get(ctx, "job", friday)
			require.NoError(t, err)
			require.Equal(t, "panic: planned", r.Earlier[0].Error)
		})
	}
}

// A248: a panic in a run that the process has begun by itself is reported, and does not end the process: no recovery of the
// cron library is around it.
func TestPanicOfARequestedRun(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	done := make(calls, 100)
	in, lines := f.logged(nil, done.options())
	job, err := in.Job("job", schedlock.Periods(24*time.Hour), func(context.Context, *schedlock.Run) error { panic("planned") })
	require.NoError(t, err)
	job.Next(time.Now())
	require.Eventually(t, func() bool {
		_, err := in.RequestRun(ctx, "job", "")
		return err == nil
	}, soon, 20*time.Millisecond)
	a := got(t, done, "the end of the run")
	require.Equal(t, schedlock.Failed, a.res.Outcome)
	require.ErrorContains(t, a.err, "panic: planned")
	require.Eventually(t, func() bool { return lines.FilterMessage("a run failed").Len() == 1 }, soon, 20*time.Millisecond)
	require.Contains(t, lines.FilterMessage("a run failed").All()[0].ContextMap()["stack"], "TestPanicOfARequestedRun")
}

// A251: etcd is away for a moment when a run fails. The next attempt comes when the record of the failure is confirmed.
func TestRetryFailedAfterAnOutageAtTheEnd(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	in := f.instance(nil, clock(friday).options())
	ends := func(_ string, msg any) bool {
		r, ok := msg.(*etcdserverpb.TxnRequest)
		return ok && len(r.Success) > 1 && strings.HasSuffix(string(r.Success[0].GetRequestDeleteRange().GetKey()), "/job/lock")
	}
	refused := in.client.Inject(embedtest.Fault{Method: "Txn", Match: ends, Do: embedtest.FailWith, Err: rpctypes.ErrGRPCNoSpace})
	fn := failing{fails: 1}
	job, err := in.Job("job", nine{}, fn.run, schedlock.RetryFailed(2, pause), schedlock.AtMost(time.Minute))
	require.NoError(t, err)
	res, err := job.RunContext(ctx)
	require.NoError(t, err)
	require.Equal(t, []any{schedlock.Ran, 2, 1}, []any{res.Outcome, res.Attempt, refused.Hits()})
	require.NoError(t, res.Unconfirmed)
}
