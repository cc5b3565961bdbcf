package idempotency_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// A176: another process claims the request of a lost attempt, gives up, and takes its claim back: the record is again what
// the attempt has written, at another revision. No other function has run, so the attempt still ends as it says.
func TestClaimTakenBackFencesNone(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(context.Context, *idempotency.Attempt) error{
		"commit":         func(ctx context.Context, at *idempotency.Attempt) error { return at.Commit(ctx, []byte("a")) },
		"commit of much": func(ctx context.Context, at *idempotency.Attempt) error { return at.Commit(ctx, make([]byte, 3<<20)) },
		"release":        func(ctx context.Context, at *idempotency.Attempt) error { return at.Release(ctx) },
		"abandon":        func(ctx context.Context, at *idempotency.Attempt) error { return at.Abandon(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			a, b := f.instance(nil, nil), f.instance(nil, nil)
			at := begin(t, a, key("1"))
			before := b.record(t, key("1")).Revision
			require.NoError(t, f.ExpireLease(ctxT(t), a.sess.Lease()))
			closed(t, at.Context().Done(), "it is lost")
			b.claimsInVain(t, key("1"))
			require.Eventually(t, func() bool {
				r := b.record(t, key("1"))
				return r.Revision > before && r.State == idempotency.Unknown && r.Attempt == 1
			}, soon, 5*time.Millisecond)
			require.NoError(t, end(ctxT(t), at))
			require.Zero(t, a.Stats().Fenced)
			switch name {
			case "release":
				require.Equal(t, 1, begin(t, b, key("1")).Attempt())
			case "abandon":
				require.Empty(t, f.working())
			default:
				require.NotEmpty(t, replayed(t, b, key("1")).Value)
			}
		})
	}
}

// A176: a condition of Attach is not met, the answer that says so is lost, and so is that to the put that shuts out late
// copies; then the caller gives up. The attempt's own put does not fence it: when the condition is met, the outcome
// is recorded.
func TestOwnPutFencesNone(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	at := begin(t, a, key("1"))
	before := b.record(t, key("1")).Revision
	at.Attach([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(f.Root+"flag"), "!=", 0)})
	lost := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isCommit, Do: embedtest.DropResponse})
	short, cancel := context.WithCancel(ctxT(t))
	shut := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isPutAgain, Do: embedtest.DropResponse, After: func() {
		if _, err := f.Client().Put(context.Background(), f.Root+"flag", ""); err != nil {
			t.Error(err)
		}
		cancel()
	}})
	require.ErrorIs(t, at.Commit(short, []byte("a")), idempotency.ErrNotRecorded)
	require.Equal(t, 1, lost.Hits())
	require.Equal(t, 1, shut.Hits())
	require.Greater(t, b.record(t, key("1")).Revision, before)
	at2, rec, err := b.Begin(ctxT(t), key("1"), "payload")
	require.NoError(t, err)
	require.Nil(t, at2, "another attempt")
	require.Equal(t, "a", string(rec.Value))
	require.Zero(t, a.Stats().Fenced)
}

// isPutAgain matches the put of a record of an attempt in progress that is no claim.
func isPutAgain(method string, msg any) bool {
	r, ok := msg.(*etcdserverpb.TxnRequest)
	return ok && putsRecord(r, "working") && !isClaim(method, msg)
}

// record returns what an operator sees of a request.
func (in instance) record(t testing.TB, k idempotency.Key) idempotency.Record {
	t.Helper()
	r, _, err := in.Get(ctxT(t), in.Ref(k))
	require.NoError(t, err)
	return r
}

// claimsInVain has an instance claim a request, and give up before the answer: the claim is applied, and taken back.
func (in instance) claimsInVain(t testing.TB, k idempotency.Key) {
	t.Helper()
	inj := in.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Do: embedtest.HoldResponse})
	short, cancel := context.WithCancel(ctxT(t))
	done := make(chan error, 1)
	go func() {
		_, _, err := in.Begin(short, k, "payload")
		done <- err
	}()
	require.NoError(t, inj.WaitHit(ctxT(t)))
	cancel()
	require.ErrorIs(t, got(t, done, "the call returns"), context.Canceled)
	_ = inj.Release()
}
