package idempotency_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// seen calls Begin, with LikelyNew, for requests of which etcd has a record, while etcd writes nothing: each is answered from its record,
// and none as one of which nothing is known.
func seen(ctx context.Context, t *testing.T, b instance) {
	t.Helper()
	call := func(id, payload string) (*idempotency.Outcome, error) {
		at, out, err := b.Begin(ctx, key(id), payload, idempotency.LikelyNew(), idempotency.Wait(0))
		require.Nil(t, at, id)
		return out, err
	}
	out, err := call("done", "payload")
	require.NoError(t, err)
	require.Equal(t, "x", string(out.Value))
	_, err = call("done, and another payload", "another")
	require.ErrorIs(t, err, idempotency.ErrMismatch)
	_, err = call("in progress", "payload")
	require.ErrorIs(t, err, idempotency.ErrInProgress)
	_, err = call("unknown", "payload")
	require.ErrorIs(t, err, idempotency.ErrUnknown)
}

// recorded makes the requests of seen.
func recorded(t *testing.T, a instance) {
	t.Helper()
	require.NoError(t, begin(t, a, key("done")).Commit(ctxT(t), []byte("x")))
	require.NoError(t, begin(t, a, key("done, and another payload")).Commit(ctxT(t), []byte("x")))
	require.NoError(t, begin(t, a, key("lost")).Abandon(ctxT(t)))
	require.NoError(t, begin(t, a, key("unknown"), idempotency.OnLost(idempotency.Refuse)).Abandon(ctxT(t)))
	begin(t, a, key("in progress"))
}

// A384: etcd is out of space, which no member has reported yet, and refuses a claim before it compares what there is. A call
// with LikelyNew, which has read nothing, returned ErrUnseen of a request that was done, and a middleware with FailOpen
// executed it again.
func TestSeenWithoutSpace(t *testing.T) {
	t.Parallel()
	f := own(t)
	a, b := f.instance(nil, nil), f.instance(nil, &idempotency.Options{NearQuota: 2})
	recorded(t, a)
	require.NoError(t, begin(t, b, key("warm")).Release(ctxT(t))) // b has a lease for records
	require.NoError(t, f.SetNoSpace(ctxT(t), true))
	seen(ctxT(t), t, b)
	_, _, err := b.Begin(ctxT(t), key("lost"), "payload", idempotency.LikelyNew())
	require.ErrorIs(t, err, idempotency.ErrNearQuota)
	require.NotErrorIs(t, err, idempotency.ErrUnseen)
	_, _, err = b.Begin(ctxT(t), key("new"), "payload", idempotency.LikelyNew())
	require.ErrorIs(t, err, idempotency.ErrNearQuota)
	require.ErrorIs(t, err, idempotency.ErrUnseen)
	require.NoError(t, f.SetNoSpace(ctxT(t), false))
}

// A384: the same, where no lease for the record is granted.
func TestSeenWithoutALeaseForRecords(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, c := f.instance(nil, nil), f.instance(nil, &idempotency.Options{NearQuota: 2})
	recorded(t, a)
	c.client.Inject(embedtest.Fault{Method: "LeaseGrant", Do: embedtest.FailWith, Times: -1, Err: rpctypes.ErrGRPCNoSpace})
	seen(ctxT(t), t, c)
	_, _, err := c.Begin(ctxT(t), key("new"), "payload", idempotency.LikelyNew())
	require.ErrorIs(t, err, idempotency.ErrNearQuota)
	require.ErrorIs(t, err, idempotency.ErrUnseen)
}

// A385: etcd is out of space, so a session that was lost gets no lease. A call with LikelyNew waited for one, and then
// returned ErrUnseen of a request that was done.
func TestSeenWithoutASession(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, &idempotency.Options{NearQuota: 2})
	recorded(t, a)
	b.client.Inject(embedtest.Fault{Method: "LeaseGrant", Do: embedtest.FailWith, Times: -1, Err: rpctypes.ErrGRPCNoSpace})
	require.NoError(t, f.ExpireLease(ctxT(t), b.sess.Lease()))
	require.Eventually(t, func() bool { return b.sess.Lease() == 0 }, soon, 5*time.Millisecond)
	short, cancel := context.WithTimeout(ctxT(t), soon)
	defer cancel()
	seen(short, t, b)
}
