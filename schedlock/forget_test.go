package schedlock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

// retired leaves a job whose process has ended.
func (f fixture) retired(ticks ...int) {
	f.T.Helper()
	a := f.instance(nil, nil)
	for _, n := range ticks {
		res, err := a.Do(ctxT(f.T), "job", nothing, schedlock.Tick(tick(n)))
		require.NoError(f.T, err)
		require.Equal(f.T, schedlock.Ran, res.Outcome)
	}
	require.NoError(f.T, a.sess.Close(ctxT(f.T)))
}

// Nothing of a forgotten job is listed, and a late call does not start one of its ticks again.
func TestForget(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	f.retired(1, 2)
	b := f.instance(nil, nil)
	require.NoError(t, b.Pause(ctx, "job", "retired"))
	_, err := b.Do(ctx, "job other", nothing, schedlock.Tick(tick(1)))
	require.NoError(t, err)
	require.NoError(t, b.Forget(ctx, "job"))
	names, err := b.Jobs(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"job other"}, names)
	_, err = b.Status(ctx, "job")
	require.ErrorIs(t, err, schedlock.ErrUnknownJob)
	_, err = b.History(ctx, "job")
	require.ErrorIs(t, err, schedlock.ErrUnknownJob)
	require.ErrorIs(t, b.Forget(ctx, "job"), schedlock.ErrUnknownJob)

	left := f.Keys("/job/job/")
	require.Len(t, left, 1, "the floor alone")
	resp, err := f.Client().Get(ctx, left[0])
	require.NoError(t, err)
	ttl, err := f.Client().TimeToLive(ctx, clientv3.LeaseID(resp.Kvs[0].Lease))
	require.NoError(t, err)
	require.Greater(t, ttl.TTL, int64(23*3600), "it expires after a day")

	c := f.instance(nil, nil)
	for _, n := range []int{1, 2} {
		res, err := c.Do(ctx, "job", nothing, schedlock.Tick(tick(n)))
		require.NoError(t, err)
		require.Equal(t, schedlock.Late, res.Outcome, "tick %d", n)
	}
	res, err := c.Do(ctx, "job", nothing, schedlock.Tick(tick(3)))
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, res.Outcome, "it is a new job")
	names, err = b.Jobs(ctx)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"job", "job other"}, names)
	require.NoError(t, c.sess.Close(ctx))
	require.NoError(t, b.Forget(ctx, "job"), "again, over the floor of the first time")
	require.Len(t, f.Keys("/job/job/"), 1)
}

// A job is not forgotten while it is, or seems to be, in use.
func TestForgetRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(f fixture, b instance)
		want    string
	}{
		"it runs": {func(f fixture, _ instance) {
			started, _ := do(ctxT(f.T), f.instance(nil, nil).Locker, "job", nil, schedlock.Tick(tick(1)))
			got(f.T, started, "it starts")
		}, "a run by"},
		"it cools down": {func(f fixture, _ instance) {
			a := f.instance(nil, nil)
			_, err := a.Do(ctxT(f.T), "job", nothing, schedlock.Tick(tick(1)), schedlock.AtLeast(time.Hour))
			require.NoError(f.T, err)
			require.NoError(f.T, a.sess.Close(ctxT(f.T)))
		}, "it cools down"},
		"a live process has stored its settings": {func(f fixture, _ instance) {
			_, err := f.instance(nil, nil).Do(ctxT(f.T), "job", nothing, schedlock.Tick(tick(1)))
			require.NoError(f.T, err)
		}, "a live process uses it"},
		"a live process has run it": {func(f fixture, _ instance) {
			first, second := f.instance(nil, nil), f.instance(nil, nil)
			for n, in := range []instance{first, second} {
				_, err := in.Do(ctxT(f.T), "job", nothing, schedlock.Tick(tick(n+1)))
				require.NoError(f.T, err)
			}
			f.clockOf(second)
			require.NoError(f.T, first.sess.Close(ctxT(f.T))) // with the settings
		}, "has run it, and is alive"},
		"this process uses it": {func(f fixture, b instance) {
			_, err := b.Job("job", schedlock.Periods(time.Hour), nothing)
			require.NoError(f.T, err)
		}, "by this process"},
		"its tick has not come": {func(f fixture, _ instance) {
			ahead := f.instance(nil, &schedlock.Options{Now: func() time.Time { return time.Now().Add(time.Hour) }})
			_, err := ahead.Do(ctxT(f.T), "job", nothing, schedlock.Tick(time.Now().Add(time.Hour)))
			require.NoError(f.T, err)
			require.NoError(f.T, ahead.sess.Close(ctxT(f.T)))
		}, "has not come"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			f.retired(0)
			b := f.instance(nil, nil)
			c.prepare(f, b)
			before := f.Keys("/job/job/run/")
			err := b.Forget(ctxT(t), "job")
			require.ErrorIs(t, err, schedlock.ErrInUse)
			require.ErrorContains(t, err, c.want)
			require.Equal(t, before, f.Keys("/job/job/run/"))
		})
	}
	f := shared(t)
	b := f.instance(nil, nil)
	require.ErrorIs(t, b.Forget(ctxT(t), "job"), schedlock.ErrUnknownJob)
	require.ErrorIs(t, b.Forget(ctxT(t), ""), schedlock.ErrInvalid)
}

// clockOf waits until a process has published its time.
func (f fixture) clockOf(in instance) {
	f.T.Helper()
	require.Eventually(f.T, func() bool {
		resp, err := f.Client().Get(ctxT(f.T), in.sess.NamespacePrefix()+"clock/", clientv3.WithPrefix())
		require.NoError(f.T, err)
		for _, kv := range resp.Kvs {
			if clientv3.LeaseID(kv.Lease) == in.sess.Lease() {
				return true
			}
		}
		return false
	}, soon, 20*time.Millisecond)
}

// A process starts the job between what Forget has read and its Txn, or pauses it: nothing is removed.
func TestForgetOvertaken(t *testing.T) {
	t.Parallel()
	for name, overtake := range map[string]func(ctx context.Context, c instance) error{
		"by a run": func(ctx context.Context, c instance) error {
			_, err := c.Do(ctx, "job", nothing, schedlock.Tick(tick(2)))
			return err
		},
		"by a pause": func(ctx context.Context, c instance) error { return c.Pause(ctx, "job", "why") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			f.retired(1)
			b, c := f.instance(nil, nil), f.instance(nil, nil)
			inj := b.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldRequest, Match: func(_ string, msg any) bool {
				txn, ok := msg.(*etcdserverpb.TxnRequest)
				return ok && len(txn.Success) > 0 && strings.Contains(string(txn.Success[0].GetRequestDeleteRange().GetKey()), "/job/")
			}})
			done := make(chan error, 1)
			go func() { done <- b.Forget(ctx, "job") }()
			require.NoError(t, inj.WaitHit(ctx))
			require.NoError(t, overtake(ctx, c))
			before := f.Keys("/job/job/")
			require.NoError(t, inj.Release())
			require.ErrorIs(t, got(t, done, "it returns"), schedlock.ErrInUse)
			require.Equal(t, before, f.Keys("/job/job/"))
		})
	}
}

// The answer of etcd is lost: the job is forgotten, and no error says otherwise.
func TestForgetWithoutAnswer(t *testing.T) {
	t.Parallel()
	f := shared(t)
	f.retired(1)
	b := f.instance(nil, nil)
	inj := b.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropResponse, Match: func(_ string, msg any) bool {
		txn, ok := msg.(*etcdserverpb.TxnRequest)
		return ok && len(txn.Success) > 0 && txn.Success[0].GetRequestDeleteRange() != nil
	}})
	require.NoError(t, b.Forget(ctxT(t), "job"))
	require.Positive(t, inj.Hits())
	require.Len(t, f.Keys("/job/job/"), 1)
}
