package commit_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/commit"
)

// F27, T23: what Remove returns, with and without lost responses.
func TestRemove(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fault *embedtest.Fault
		off   int64 // added to the token
		want  commit.Removal
	}{
		"removed":          {nil, 0, commit.Removed},
		"not this one":     {nil, 1, commit.Absent},
		"answer lost":      {&embedtest.Fault{Do: embedtest.DropResponse}, 0, commit.Vanished},
		"request lost":     {&embedtest.Fault{Do: embedtest.FailWith}, 0, commit.Removed},
		"overload":         {&embedtest.Fault{Do: embedtest.FailWith, Err: rpctypes.ErrGRPCRequestTooManyRequests}, 1, commit.Absent},
		"no space, or not": {&embedtest.Fault{Do: embedtest.DropResponse, Err: rpctypes.ErrGRPCNoSpace}, 0, commit.Vanished},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, embedtest.Shared(t))
			c := f.creation()
			c.Also = []clientv3.Op{clientv3.OpPut(f.prefix+"also", "")}
			token := f.create(c)
			_, err := f.client.Put(ctxT(t), f.prefix+"another's", "")
			require.NoError(t, err)
			if tt.fault != nil {
				tt.fault.Method = "Txn"
				defer func(inj *embedtest.Injection) { require.Equal(t, 1, inj.Hits()) }(f.client.Inject(*tt.fault))
			}
			removal, err := commit.Remove(ctxT(t), f.client, f.key(), token+tt.off, f.prefix+"also", f.prefix+"another's")
			require.NoError(t, err)
			require.Equal(t, tt.want, removal)
			require.Equal(t, tt.off != 0, f.exists(f.key()))
			require.Equal(t, tt.off != 0, f.exists(f.prefix+"also"))
			require.True(t, f.exists(f.prefix+"another's"), "it was not created together with the key")
		})
	}
}

// T20, F26: a late copy of a removal does not remove the key's successor.
func TestTrapLateRemove(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Shared(t))
	token := f.create(f.creation())
	inj := f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.Duplicate})
	removal, err := commit.Remove(ctxT(t), f.client, f.key(), token)
	require.NoError(t, err)
	require.Equal(t, commit.Vanished, removal)
	successor := f.create(f.creation())
	require.NoError(t, inj.Release())
	require.False(t, inj.LateResponses()[0].Response.(*etcdserverpb.TxnResponse).Succeeded)
	require.Equal(t, successor, f.get(f.key()).Kvs[0].CreateRevision)
}

// Remove gives up with its ctx, and for good with an error that says never.
func TestRemoveGivesUp(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Shared(t))
	token := f.create(f.creation())
	ctx, cancel := context.WithCancel(ctxT(t))
	inj := f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.FailWith, Times: -1, Before: cancel})
	go func() { _ = inj.WaitHit(ctx); cancel() }()
	_, err := commit.Remove(ctx, f.client, f.key(), token)
	require.ErrorIs(t, err, context.Canceled)
	inj.Remove()
	f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.FailWith, Err: rpctypes.ErrGRPCPermissionDenied})
	_, err = commit.Remove(ctxT(t), f.client, f.key(), token)
	require.Equal(t, rpctypes.ErrPermissionDenied, err)
	require.True(t, f.exists(f.key()))
}

// A notice to a lease that has ended: the request went with it.
func TestRemoveWithOnLostLease(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Shared(t))
	token := f.create(f.creation())
	put := []clientv3.Op{clientv3.OpPut(f.prefix+"notice", "", clientv3.WithLease(f.lease))}
	inj := f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldRequest})
	done := make(chan error, 1)
	go func() {
		removal, err := commit.RemoveWith(ctxT(t), f.client, f.key(), token, put)
		if err == nil && removal != commit.Absent {
			err = context.Canceled
		}
		done <- err
	}()
	require.NoError(t, inj.WaitHit(ctxT(t)))
	require.NoError(t, f.cluster.RevokeLease(ctxT(t), f.lease))
	require.NoError(t, inj.Release())
	require.NoError(t, <-done)
	require.False(t, f.exists(f.prefix+"notice"))

	// The request exists all the same: another process has put it on another lease.
	resp, err := f.client.Put(ctxT(t), f.key(), "")
	require.NoError(t, err)
	removal, err := commit.RemoveWith(ctxT(t), f.client, f.key(), resp.Header.Revision, put)
	require.NoError(t, err)
	require.Equal(t, commit.Orphaned, removal)
	require.True(t, f.exists(f.key()))
}

func TestSwap(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Shared(t))
	key := f.prefix + "limit"
	shows := func(v string) func([]byte) commit.Found {
		return func(b []byte) commit.Found {
			switch string(b) {
			case v:
				return commit.Mine
			case "beside":
				return commit.NotMade
			}
			return commit.Another
		}
	}
	swap := func(mod int64, v string) (int64, []*etcdserverpb.ResponseOp, error) {
		return commit.Swap(ctxT(t), f.client, key, mod, v, shows(v), clientv3.OpGet(f.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly()))
	}
	a, read, err := swap(0, "a")
	require.NoError(t, err)
	require.EqualValues(t, 2, read[0].GetResponseRange().Count)
	require.Equal(t, f.get(key).Kvs[0].ModRevision, a)

	_, _, err = swap(0, "b")
	require.ErrorIs(t, err, commit.ErrConflict)
	_, _, err = swap(a-1, "b")
	require.ErrorIs(t, err, commit.ErrConflict)

	// The answer is lost: the change is found, and made once.
	inj := f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropResponse})
	b, read, err := swap(a, "b")
	require.NoError(t, err)
	require.Nil(t, read)
	require.Equal(t, 1, inj.Hits())
	kv := f.get(key).Kvs[0]
	require.Equal(t, "b", string(kv.Value))
	require.Equal(t, []int64{b, 2}, []int64{kv.ModRevision, kv.Version})

	// S6: the answer is lost and another's change has come since: this one is
	// not made again, it would undo the newer one.
	inj = f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropResponse, After: func() {
		_, err := f.cluster.Client().Put(ctxT(t), key, "newer")
		require.NoError(t, err)
	}})
	_, read, err = swap(b, "c")
	require.NoError(t, err)
	require.Nil(t, read)
	require.Equal(t, 1, inj.Hits())
	require.Equal(t, "newer", string(f.get(key).Kvs[0].Value))

	// A243: this one was lost, and what is found replaces nothing of it: it is to be made again.
	f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.FailWith, Before: func() {
		_, err := f.cluster.Client().Put(ctxT(t), key, "beside")
		require.NoError(t, err)
	}})
	_, _, err = swap(f.get(key).Kvs[0].ModRevision, "c")
	require.ErrorIs(t, err, commit.ErrConflict)

	// A late copy undoes nothing either.
	newer := f.get(key).Kvs[0].ModRevision
	inj = f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldRequest})
	ctx, cancel := context.WithCancel(ctxT(t))
	go func() { _ = inj.WaitHit(ctx); cancel() }()
	_, _, err = commit.Swap(ctx, f.client, key, newer, "late", shows("late"))
	require.ErrorIs(t, err, context.Canceled)
	d, _, err := swap(newer, "d")
	require.NoError(t, err)
	require.NoError(t, inj.Release())
	require.Equal(t, d, f.get(key).Kvs[0].ModRevision)

	f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.FailWith, Err: rpctypes.ErrGRPCPermissionDenied})
	_, _, err = swap(d, "e")
	require.Equal(t, rpctypes.ErrPermissionDenied, err)
}

// What must be gone in the end is tried again even after etcd has refused it.
func TestErase(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Shared(t))
	token := f.create(f.creation())
	f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.FailWith, Times: 2, Err: rpctypes.ErrGRPCPermissionDenied})
	var reported []error
	removal, err := commit.Erase(ctxT(t), f.client, f.key(), token, func(err error) { reported = append(reported, err) })
	require.NoError(t, err)
	require.Equal(t, commit.Removed, removal)
	require.Equal(t, []error{rpctypes.ErrPermissionDenied}, reported, "reported once")
	require.False(t, f.exists(f.key()))
}
