package idempotency_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// etcd says that it has no space after it has applied a release, and another attempt has begun since. The release
// has released its own attempt: it is not fenced.
func TestReleaseThatIsOvertakenAfterNoSpace(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	at := begin(t, a, key("1"))
	_, err := idempotency.Step(at, "one", func(context.Context) (int, error) { return 1, nil }) // so that the release puts
	require.NoError(t, err)
	inj := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isCommit, Do: embedtest.DropResponse, Err: rpctypes.ErrGRPCNoSpace,
		After: func() {
			if next, _, err := b.Begin(context.Background(), key("1"), "payload"); err != nil || next == nil {
				t.Error(err)
			}
		}})
	require.NoError(t, at.Release(ctxT(t)))
	require.Equal(t, 1, inj.Hits())
	require.EqualValues(t, 1, a.Stats().Released)
	require.Zero(t, a.Stats().Fenced)
}

// A function has failed, so its release keeps the fingerprint: that put is not answered, and then etcd has no space. A copy
// of the put arrives before the deletion in its place, and another attempt begins: the release has released its own attempt,
// and is not fenced.
func TestReleaseThatIsOvertakenBeforeItDeletes(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	var put *etcdserverpb.PutRequest
	unanswered := a.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.FailWith, Match: func(method string, msg any) bool {
		if !isCommit(method, msg) {
			return false
		}
		put = msg.(*etcdserverpb.TxnRequest).Success[0].GetRequestPut()
		return true
	}})
	full := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isCommit, Do: embedtest.FailWith, Err: rpctypes.ErrGRPCNoSpace})
	deletion := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isRelease, Before: func() {
		if _, err := f.Client().Put(context.Background(), string(put.Key), string(put.Value)); err != nil {
			t.Error(err)
		}
		if next, _, err := b.Begin(context.Background(), key("1"), "payload"); err != nil || next == nil {
			t.Error("no attempt: ", err)
		}
	}})
	failed := errors.New("failed")
	_, err := idempotency.Do(ctxT(t), a.Store, key("1"), "payload", func(context.Context, *idempotency.Attempt) (int, error) { return 0, failed })
	require.ErrorIs(t, err, failed)
	require.NotErrorIs(t, err, idempotency.ErrFenced)
	require.Equal(t, []int{1, 1, 1}, []int{unanswered.Hits(), full.Hits(), deletion.Hits()})
	require.EqualValues(t, 1, a.Stats().Released)
	require.Zero(t, a.Stats().Fenced)
}
