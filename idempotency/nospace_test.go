package idempotency_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// A Release with recovery points has to write, so without space it returns ErrNotRecorded, and the key is
// released when there is space again. The points are kept.
func TestReleaseOfStepsWithoutSpace(t *testing.T) {
	t.Parallel()
	f := own(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	at := begin(t, a, key("1"))
	step := func(at *idempotency.Attempt, v int) int {
		got, err := idempotency.Step(at, "s", func(context.Context) (int, error) { return v, nil })
		require.NoError(t, err)
		return got
	}
	require.Equal(t, 1, step(at, 1))
	require.NoError(t, f.SetNoSpace(ctxT(t), true))
	_, err := idempotency.Step(at, "t", func(context.Context) (int, error) { return 1, nil })
	require.ErrorIs(t, rpctypes.Error(err), rpctypes.ErrNoSpace)
	short, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, at.Release(short), idempotency.ErrNotRecorded)
	require.EqualValues(t, 1, a.Stats().Pending)
	rejected(t, b, key("1"))
	require.NoError(t, f.SetNoSpace(ctxT(t), false))
	require.Eventually(t, func() bool { return a.Stats().Released == 1 }, soon, 5*time.Millisecond)
	// The other two may take etcd to be full for some seconds yet.
	require.Equal(t, 1, step(begin(t, f.instance(nil, &idempotency.Options{NearQuota: 2}), key("1")), 2))
}

// A function fails while etcd is out of space: the key is released nevertheless, and the payload's
// fingerprint is not kept.
func TestFailureWithoutSpace(t *testing.T) {
	t.Parallel()
	f := own(t)
	a := f.instance(nil, nil)
	failed := errors.New("failed")
	_, err := idempotency.Do(ctxT(t), a.Store, key("1"), 1, func(context.Context, *idempotency.Attempt) (int, error) {
		return 0, errors.Join(failed, f.SetNoSpace(ctxT(t), true))
	})
	require.ErrorIs(t, err, failed)
	require.NotErrorIs(t, err, idempotency.ErrNotRecorded)
	require.Empty(t, f.Keys("/record/"))
}

// A181: a Step is refused for lack of space, and nothing is in doubt: a Release of an attempt without recovery points deletes
// its record, which needs none. If the answer to the Step before was lost, that one is settled first.
func TestReleaseAfterAStepWithoutSpace(t *testing.T) {
	t.Parallel()
	f := own(t)
	a := f.instance(nil, &idempotency.Options{NearQuota: 2})
	for _, doubt := range []bool{false, true} {
		at := begin(t, a, key("1"))
		if doubt {
			a.client.Inject(embedtest.Fault{Method: "Txn", Match: isPutAgain, Do: embedtest.FailWith})
		}
		require.NoError(t, f.SetNoSpace(ctxT(t), true))
		_, err := idempotency.Step(at, "s", func(context.Context) (int, error) { return 1, nil })
		require.ErrorIs(t, rpctypes.Error(err), rpctypes.ErrNoSpace)
		if !doubt {
			require.NoError(t, at.Release(ctxT(t)))
			require.Empty(t, f.Keys("/record/"))
			require.NoError(t, f.SetNoSpace(ctxT(t), false))
			continue
		}
		short, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		require.ErrorIs(t, at.Release(short), idempotency.ErrNotRecorded)
		cancel()
		require.Len(t, f.working(), 1)
		require.NoError(t, f.SetNoSpace(ctxT(t), false))
		f.NoKeys("/record/")
	}
}

// A181: etcd refuses an outcome for lack of space, and then a condition of Attach is not met. No copy is under way that could
// find it met, so nothing is put against that, which would need space.
func TestConflictAfterARefusalForSpace(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, &idempotency.Options{NearQuota: 2})
	at := begin(t, a, key("1"))
	at.Attach([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(f.Root+"none"), "!=", 0)})
	full := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isCommit, Do: embedtest.FailWith, Err: rpctypes.ErrGRPCNoSpace})
	again := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isPutAgain, Do: embedtest.FailWith, Times: -1, Err: rpctypes.ErrGRPCNoSpace})
	require.ErrorIs(t, at.Commit(ctxT(t), []byte("a")), idempotency.ErrNotRecorded)
	require.Equal(t, 1, full.Hits())
	f.noneWorks()
	require.Zero(t, again.Hits())
	require.Equal(t, 2, begin(t, b, key("1")).Attempt())
}
