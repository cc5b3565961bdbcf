package schedlock_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

// lostCalls are the records with which Options.Lost was called.
type lostCalls struct {
	mu  sync.Mutex
	all []schedlock.Record
}

func (c *lostCalls) options() *schedlock.Options {
	return &schedlock.Options{Lost: func(r schedlock.Record) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.all = append(c.all, r)
	}}
}

func (c *lostCalls) records() []schedlock.Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]schedlock.Record(nil), c.all...)
}

// dies starts a run in a process that dies before its end, and returns its record.
func (f fixture) dies(ctx context.Context, at time.Time, opts ...schedlock.CallOption) schedlock.Record {
	f.T.Helper()
	in := f.instance(nil, nil)
	started, _ := do(ctx, in.Locker, "job", nil, append(opts, schedlock.Tick(at))...)
	got(f.T, started, "it starts")
	r, err := in.Get(ctx, "job", at)
	require.NoError(f.T, err)
	require.Equal(f.T, schedlock.RunActive, r.State)
	in.client.Cut()
	require.NoError(f.T, f.ExpireLease(ctx, in.sess.Lease()))
	return r
}

// K17: a run whose process has died is reported by one that lives and uses the job, and by no other one after that.
func TestLostRunIsReportedByASurvivor(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	var calls lostCalls
	survivors := make([]instance, 3)
	for n := range survivors {
		survivors[n] = f.instance(nil, calls.options())
		_, err := survivors[n].Do(ctx, "job", nothing, schedlock.Tick(tick(n)))
		require.NoError(t, err)
	}
	_, lines := f.logged(nil, nil)
	r := f.dies(ctx, tick(10))
	require.Eventually(t, func() bool { return len(calls.records()) > 0 }, soon, 20*time.Millisecond)
	got := calls.records()[0]
	require.Equal(t, []any{"job", r.Tick, r.Owner, 1, schedlock.RunLost}, []any{got.Job, got.Tick, got.Owner, got.Attempt, got.State})
	require.Zero(t, lines.Len(), "it does not use the job")

	// Survivors that look at the same moment may both report it.
	others := func() (out []schedlock.Record) {
		for _, r := range calls.records() {
			if !r.Tick.Equal(got.Tick) {
				out = append(out, r)
			}
		}
		return out
	}

	// A process that begins later finds it reported; one that begins when all are dead reports what was lost meanwhile.
	require.Eventually(t, func() bool { return f.marked(survivors[0]) }, soon, 20*time.Millisecond)
	late := f.instance(nil, calls.options())
	job, err := late.Job("job", nine{}, nothing)
	require.NoError(t, err)
	job.Next(time.Now())
	for _, in := range append(survivors, late) {
		require.NoError(t, in.sess.Close(ctx))
	}
	before := len(calls.records())
	require.LessOrEqual(t, before, len(survivors))
	require.Empty(t, others())
	second := f.dies(ctx, tick(11))
	next, lines := f.logged(nil, calls.options())
	_, err = next.Do(ctx, "job", nothing, schedlock.Tick(tick(12)))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(calls.records()) == before+1 }, soon, 20*time.Millisecond)
	require.Len(t, others(), 1)
	require.Equal(t, second.Tick, others()[0].Tick)
	require.Equal(t, 1, lines.FilterMessageSnippet("a run was lost with its process").Len())
}

// marked reports whether a run of the job is marked as reported.
func (f fixture) marked(in instance) bool {
	resp, err := f.Client().Get(ctxT(f.T), in.sess.NamespacePrefix()+"job/job/reported-loss")
	return err == nil && resp.Count == 1
}

// K22: a run is lost while the only survivor is cut off, and the events of that are compacted: it reports the run when
// it can reach etcd again.
func TestLossInAGapIsReported(t *testing.T) {
	t.Parallel()
	f := own(t)
	ctx := ctxT(t)
	var calls lostCalls
	survivor := f.instance(&concurrency.SessionOptions{TTL: time.Minute}, calls.options())
	for n := range 2 {
		_, err := survivor.Do(ctx, "job", nothing, schedlock.Tick(tick(n)))
		require.NoError(t, err)
	}
	survivor.client.Cut()
	r := f.dies(ctx, tick(10))
	_, err := f.Compact(ctx)
	require.NoError(t, err)
	survivor.client.Heal()
	require.Eventually(t, func() bool { return len(calls.records()) == 1 }, soon, 20*time.Millisecond)
	require.Equal(t, []any{r.Owner, r.Tick}, []any{calls.records()[0].Owner, calls.records()[0].Tick})
	require.Eventually(t, func() bool { return f.marked(survivor) }, soon, 20*time.Millisecond)
	_, err = survivor.Do(ctx, "job", nothing, schedlock.Tick(tick(11)))
	require.NoError(t, err)
	require.NoError(t, survivor.sess.Close(ctx))
	require.Len(t, calls.records(), 1, "once")
}

// looks reports whether a request is a look for lost runs.
func looks(_ string, msg any) bool {
	txn, ok := msg.(*pb.TxnRequest)
	return ok && len(txn.Success) == 4 && bytes.HasSuffix(txn.Success[1].GetRequestRange().GetKey(), []byte("/reported-loss"))
}

// K22: a process whose look for lost runs was refused by etcd looks again at its next claim.
func TestLooksAgainForLosses(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	r := f.dies(ctx, tick(1))
	var calls lostCalls
	in := f.instance(nil, calls.options())
	refused := in.client.Inject(embedtest.Fault{Method: "Txn", Match: looks, Do: embedtest.FailWith, Err: rpctypes.ErrGRPCPermissionDenied})
	claimed := 1
	claim := func() {
		claimed++
		_, err := in.Do(ctx, "job", nothing, schedlock.Tick(tick(claimed)))
		require.NoError(t, err)
	}
	claim()
	require.NoError(t, refused.WaitHit(ctx))
	require.Eventually(t, func() bool { claim(); return len(calls.records()) > 0 }, soon, 20*time.Millisecond)
	require.Equal(t, r.Owner, calls.records()[0].Owner)
}

// K17: a run that has ended in whatever way, or that is active, is not reported as lost.
func TestRunsThatAreNotLost(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	var calls lostCalls
	in := f.instance(nil, calls.options())
	other := f.instance(nil, calls.options())
	_, err := in.Do(ctx, "job", nothing, schedlock.Tick(tick(1)))
	require.NoError(t, err)
	_, err = other.Do(ctx, "job", func(context.Context, *schedlock.Run) error { return errors.New("no") }, schedlock.Tick(tick(2)))
	require.Error(t, err)
	end := make(chan struct{})
	started, done := do(ctx, in.Locker, "job", end, schedlock.Tick(tick(3)))
	got(t, started, "it starts")
	require.NoError(t, other.Unlock(ctx, "job", "why"))
	got(t, done, "it ends")
	started, done = do(ctx, in.Locker, "job", end, schedlock.Tick(tick(4)))
	got(t, started, "it starts")
	begins := f.instance(nil, calls.options())
	job, err := begins.Job("job", nine{}, nothing)
	require.NoError(t, err)
	job.Next(time.Now())
	close(end)
	got(t, done, "it ends")
	for _, x := range []instance{in, other, begins} {
		require.NoError(t, x.sess.Close(ctx))
	}
	require.Empty(t, calls.records())
}

// K17: a lost run whose tick is started again is reported by the process that does so.
func TestLostRunThatIsStartedAgain(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	var calls lostCalls
	in := f.instance(nil, calls.options())
	r := f.dies(ctx, tick(1), schedlock.Retries(1))
	res, err := in.Do(ctx, "job", nothing, schedlock.Tick(tick(1)), schedlock.Retries(1))
	require.NoError(t, err)
	require.Equal(t, []any{schedlock.Ran, 2}, []any{res.Outcome, res.Attempt})
	require.Eventually(t, func() bool { return len(calls.records()) == 1 }, soon, 20*time.Millisecond)
	require.Equal(t, []any{r.Owner, 1}, []any{calls.records()[0].Owner, calls.records()[0].Attempt})
}

// A279: a process that looks for lost runs while it starts the tick of one again reports that once.
func TestLossIsReportedOnce(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	var calls lostCalls
	in := f.instance(nil, calls.options())
	_, err := in.Do(ctx, "job", nothing, schedlock.Tick(tick(0)), schedlock.Retries(1))
	require.NoError(t, err)
	looked, again := make(chan struct{}), make(chan struct{})
	in.client.Inject(embedtest.Fault{Method: "Txn", Match: looks, After: func() { close(looked); <-again }})
	r := f.dies(ctx, tick(1), schedlock.Retries(1))
	closed(t, looked, "it has read that the run was lost")
	res, err := in.Do(ctx, "job", nothing, schedlock.Tick(tick(1)), schedlock.Retries(1))
	require.NoError(t, err)
	require.Equal(t, []any{schedlock.Ran, 2}, []any{res.Outcome, res.Attempt})
	require.Eventually(t, func() bool { return len(calls.records()) == 1 }, soon, 20*time.Millisecond)
	close(again)
	require.Eventually(t, func() bool { return f.marked(in) }, soon, 20*time.Millisecond)
	require.Len(t, calls.records(), 1)
	require.Equal(t, []any{r.Owner, 1}, []any{calls.records()[0].Owner, calls.records()[0].Attempt})
}
