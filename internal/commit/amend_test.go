package commit_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/commit"
)

// amendment changes an existing key to "after".
func (f *fixture) amendment() commit.Amendment {
	f.t.Helper()
	resp, err := f.client.Put(ctxT(f.t), f.key(), "before")
	require.NoError(f.t, err)
	return commit.Amendment{
		Key: f.key(), Mod: resp.Header.Revision,
		Mine: func(kv *mvccpb.KeyValue) bool { return kv != nil && string(kv.Value) == "after" },
		Then: []clientv3.Op{clientv3.OpPut(f.key(), "after"), clientv3.OpPut(f.prefix+"also", "")},
		Same: func() clientv3.Op { return clientv3.OpPut(f.key(), "before") },
	}
}

// What Amend returns, with and without lost responses.
func TestAmend(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fault *embedtest.Fault
		other bool // another changes the key first
		unmet bool
		want  commit.Outcome
	}{
		"amended":             {nil, false, false, commit.Amended},
		"overtaken":           {nil, true, false, commit.Overtaken},
		"unmet":               {nil, false, true, commit.Unmet},
		"answer lost":         {&embedtest.Fault{Do: embedtest.DropResponse}, false, false, commit.Amended},
		"request lost":        {&embedtest.Fault{Do: embedtest.FailWith}, false, false, commit.Amended},
		"sent twice":          {&embedtest.Fault{Do: embedtest.Duplicate}, false, false, commit.Amended},
		"overload":            {&embedtest.Fault{Do: embedtest.FailWith, Err: rpctypes.ErrGRPCRequestTooManyRequests}, false, false, commit.Amended},
		"no space, and done":  {&embedtest.Fault{Do: embedtest.DropResponse, Err: rpctypes.ErrGRPCNoSpace}, false, false, commit.Amended},
		"overtaken in doubt":  {&embedtest.Fault{Do: embedtest.FailWith}, true, false, commit.Overtaken},
		"unmet, answer lost":  {&embedtest.Fault{Do: embedtest.DropResponse}, false, true, commit.Unmet},
		"unmet, request lost": {&embedtest.Fault{Do: embedtest.FailWith}, false, true, commit.Unmet},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, embedtest.Shared(t))
			a := f.amendment()
			if tt.unmet {
				a.If = []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(f.prefix+"cond"), "!=", 0)}
				a.Else = []clientv3.Op{clientv3.OpGet(f.presence())}
			}
			if tt.other {
				_, err := f.client.Put(ctxT(t), f.key(), "another's")
				require.NoError(t, err)
			}
			if tt.fault != nil {
				tt.fault.Method = "Txn"
				inj := f.client.Inject(*tt.fault)
				defer func() {
					require.Equal(t, 1, inj.Hits())
					before := f.get(f.key()).Kvs[0]
					_ = inj.Release()
					require.Equal(t, before, f.get(f.key()).Kvs[0], "late copies do nothing")
				}()
			}
			res, err := commit.Amend(ctxT(t), f.client, a)
			require.NoError(t, err)
			require.Equal(t, tt.want, res.Outcome)
			kv := f.get(f.key()).Kvs[0]
			require.Equal(t, tt.want == commit.Amended, f.exists(f.prefix+"also"))
			switch tt.want {
			case commit.Amended:
				require.Equal(t, "after", string(kv.Value))
				require.Equal(t, kv.ModRevision, res.Mod)
			case commit.Unmet:
				require.Equal(t, "before", string(kv.Value))
				require.Equal(t, kv.ModRevision, res.Mod)
				require.Len(t, res.Read, 1)
				_, err := f.client.Put(ctxT(t), f.prefix+"cond", "") // for the late copies
				require.NoError(t, err)
			default:
				require.Equal(t, "another's", string(kv.Value))
				require.Equal(t, kv, res.Found)
			}
		})
	}
}

// An amendment whose condition will never be met needs nothing that shuts out late copies.
func TestAmendUnmetForEver(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Shared(t))
	a := f.amendment()
	a.Same, a.If = nil, []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(f.prefix+"cond"), "=", a.Mod)}
	inj := f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.FailWith})
	res, err := commit.Amend(ctxT(t), f.client, a)
	require.NoError(t, err)
	require.Equal(t, 1, inj.Hits())
	require.Equal(t, commit.Unmet, res.Outcome)
	require.Equal(t, a.Mod, res.Mod)
	require.Equal(t, "before", string(f.get(f.key()).Kvs[0].Value))
}

// L3: without space an amendment that puts fails, with nothing done, and one that only
// deletes passes.
func TestAmendWithoutSpace(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, nil)
	if c.External() {
		t.Skip("the external cluster is not this test's own")
	}
	f := newFixture(t, c)
	a := f.amendment()
	require.NoError(t, c.SetNoSpace(ctxT(t), true))
	failed, err := commit.Amend(ctxT(t), f.client, a)
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	require.False(t, failed.Doubt, "it is not made, and will not be")
	f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.FailWith})
	failed, err = commit.Amend(ctxT(t), f.client, a)
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	require.True(t, failed.Doubt, "the first copy may be under way")
	_, err = commit.PutAt(ctxT(t), f.client, f.key(), a.Mod, a.Same())
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	a.Then, a.Mine = []clientv3.Op{clientv3.OpDelete(f.key())}, func(kv *mvccpb.KeyValue) bool { return kv == nil }
	res, err := commit.Amend(ctxT(t), f.client, a)
	require.NoError(t, err)
	require.Equal(t, commit.Amended, res.Outcome)
	require.False(t, f.exists(f.key()))
}

// A lease that is gone is reported, unless an earlier copy was applied before its end.
func TestAmendOnALeaseThatIsGone(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Shared(t))
	a := f.amendment()
	a.Then[0] = clientv3.OpPut(f.key(), "after", clientv3.WithLease(12345))
	res, err := commit.Amend(ctxT(t), f.client, a)
	require.NoError(t, err)
	require.Equal(t, commit.LeaseGone, res.Outcome)
	_, err = commit.PutAt(ctxT(t), f.client, f.key(), a.Mod, a.Then[0])
	require.ErrorIs(t, err, rpctypes.ErrLeaseNotFound)

	granted, err := f.client.Grant(ctxT(t), 60)
	require.NoError(t, err)
	a.Then[1] = clientv3.OpPut(f.prefix+"also", "", clientv3.WithLease(granted.ID))
	a.Then[0] = clientv3.OpPut(f.key(), "after")
	f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropResponse, After: func() {
		if _, err := f.cluster.Client().Revoke(ctxT(t), granted.ID); err != nil {
			t.Error(err)
		}
	}})
	res, err = commit.Amend(ctxT(t), f.client, a)
	require.NoError(t, err)
	require.Equal(t, commit.Amended, res.Outcome)
}

// Amend and PutAt end with their ctx, and PutAt puts only while the key is unchanged.
func TestAmendEndsWithItsCtx(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Shared(t))
	a := f.amendment()
	stands, err := commit.PutAt(ctxT(t), f.client, f.key(), a.Mod, clientv3.OpPut(f.prefix+"part", ""))
	require.NoError(t, err)
	require.True(t, stands)
	stands, err = commit.PutAt(ctxT(t), f.client, f.key(), a.Mod+1, clientv3.OpPut(f.prefix+"other", ""))
	require.NoError(t, err)
	require.False(t, stands)
	require.False(t, f.exists(f.prefix+"other"))
	f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.FailWith, Times: -1})
	ctx, cancel := context.WithTimeout(ctxT(t), 20*time.Millisecond)
	defer cancel()
	failed, err := commit.Amend(ctx, f.client, a)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.True(t, failed.Doubt)
	_, err = commit.PutAt(ctx, f.client, f.key(), a.Mod, a.Same())
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
