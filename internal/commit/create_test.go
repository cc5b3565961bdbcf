package commit_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

func TestCreate(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Shared(t))
	c := f.creation()
	c.Also = []clientv3.Op{clientv3.OpPut(f.prefix+"also", "1")}
	c.Read = []clientv3.Op{clientv3.OpGet(f.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())}
	res, err := f.fence.Create(ctxT(t), c)
	require.NoError(t, err)
	require.EqualValues(t, 3, res.Read[0].GetResponseRange().Count, "it reads after its own puts")
	require.True(t, f.exists(f.prefix+"also"))
	require.EqualValues(t, f.lease, f.get(f.key()).Kvs[0].Lease)
	require.Equal(t, map[string]int{"Txn": 2}, f.client.Requests(), "one for the fence, one for the key")

	// F29: the existing key is not this attempt's, even if the same process wrote it in another one.
	_, err = f.fence.Create(ctxT(t), f.creation())
	require.ErrorIs(t, err, commit.ErrOccupied)
}

// The caller's own conditions decide too, and Else shows why.
func TestCreateUnderConditions(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Shared(t))
	c := f.creation()
	c.If = []clientv3.Cmp{clientv3.Compare(clientv3.Version(f.prefix+"other"), ">", 0)}
	c.Else = []clientv3.Op{clientv3.OpGet(f.prefix+"other", clientv3.WithCountOnly())}
	res, err := f.fence.Create(ctxT(t), c)
	require.NoError(t, err)
	require.Zero(t, res.Token)
	require.Zero(t, res.Read[0].GetResponseRange().Count)
	require.False(t, f.exists(f.key()))
}

// T9, T10, F23, F46, F47: an answer was lost, for whatever reason. If the key was
// created it is found, once; if not, it is created.
func TestCreateUnanswered(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]embedtest.Fault{
		"applied":                 {Do: embedtest.DropResponse},
		"applied, leader changed": {Do: embedtest.DropResponse, Err: rpctypes.ErrGRPCLeaderChanged},
		"applied, timeout":        {Do: embedtest.DropResponse, Err: rpctypes.ErrGRPCTimeout},
		"applied, many times":     {Do: embedtest.DropResponse, Times: 4},
		"applied, and repeated by clientv3": {Do: embedtest.DropResponse,
			Err: status.Error(codes.Canceled, "reset by the server")},
		"not applied":           {Do: embedtest.FailWith, Times: 3},
		"too many requests":     {Do: embedtest.FailWith, Times: 3, Err: rpctypes.ErrGRPCRequestTooManyRequests},
		"no leader":             {Do: embedtest.FailWith, Times: 3, Err: rpctypes.ErrGRPCNoLeader},
		"not applied, no words": {Do: embedtest.FailWith, Err: status.Error(codes.Unknown, "?")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, embedtest.Shared(t))
			fault.Method = "Txn"
			inj := f.client.Inject(fault)
			f.create(f.creation())
			require.Positive(t, inj.Hits())
			kv := f.get(f.key()).Kvs[0]
			require.Equal(t, kv.CreateRevision, kv.ModRevision, "written once")
			require.Len(t, f.get(f.presence()).Kvs, 1)
		})
	}
}

// Errors that say "never" are returned as they are, and no key exists.
func TestCreateRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Shared(t))
	inj := f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.FailWith, Err: rpctypes.ErrGRPCPermissionDenied})
	_, err := f.fence.Create(ctxT(t), f.creation())
	require.Equal(t, rpctypes.ErrPermissionDenied, err)
	require.Equal(t, 1, inj.Hits())
	c := f.creation()
	c.Also = []clientv3.Op{clientv3.OpPut(f.key(), "twice")}
	_, err = f.fence.Create(ctxT(t), c)
	require.Equal(t, rpctypes.ErrDuplicateKey, err)
}

// L1, F23, T27: a creation is on its way when its caller gives up. Once it has
// been discarded, it can arrive: nothing appears.
func TestTrapL1LateCopy(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Shared(t))
	inj := f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldRequest})
	pending := f.giveUp(f.creation(), inj)
	require.NoError(t, pending.Discard(ctxT(t)))
	require.NoError(t, inj.Release())
	late := inj.LateResponses()
	require.Len(t, late, 1)
	require.False(t, late[0].Response.(*etcdserverpb.TxnResponse).Succeeded)
	require.False(t, f.exists(f.key()))
	f.create(f.creation())
}

// L1, F46: a creation was sent twice, since the first answer was lost. When its key
// has long been removed the first copy arrives once more: nothing appears.
func TestTrapL1DoubledCreate(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Shared(t))
	inj := f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.Duplicate})
	token := f.create(f.creation())
	removal, err := commit.Remove(ctxT(t), f.client, f.key(), token)
	require.NoError(t, err)
	require.Equal(t, commit.Removed, removal)
	require.NoError(t, inj.Release())
	require.False(t, inj.LateResponses()[0].Response.(*etcdserverpb.TxnResponse).Succeeded)
	require.False(t, f.exists(f.key()))
}

// L1: the name was used anew in between, and is free again or in use.
func TestTrapL1ReusedName(t *testing.T) {
	t.Parallel()
	for _, inUse := range []bool{false, true} {
		f := newFixture(t, embedtest.Shared(t))
		inj := f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldRequest})
		pending := f.giveUp(f.creation(), inj)
		require.NoError(t, pending.Discard(ctxT(t)))
		token := f.create(f.creation())
		if !inUse {
			removal, err := commit.Remove(ctxT(t), f.client, f.key(), token)
			require.NoError(t, err)
			require.Equal(t, commit.Removed, removal)
		}
		require.NoError(t, inj.Release())
		kvs := f.get(f.key()).Kvs
		require.Equal(t, inUse, len(kvs) == 1)
		if inUse {
			require.Equal(t, token, kvs[0].ModRevision)
		}
		// To discard once more takes nothing from the successor.
		require.NoError(t, pending.Discard(ctxT(t)))
		require.Equal(t, inUse, f.exists(f.key()))
	}
}

// L1: the creation was applied, or is applied only after its caller gave up.
func TestTrapL1DiscardsItsKey(t *testing.T) {
	t.Parallel()
	for _, do := range []embedtest.Action{embedtest.HoldResponse, embedtest.HoldRequest} {
		f := newFixture(t, embedtest.Shared(t))
		inj := f.client.Inject(embedtest.Fault{Method: "Txn", Do: do})
		c := f.creation()
		c.Also = []clientv3.Op{clientv3.OpPut(f.prefix+"also", "1", clientv3.WithLease(f.lease))}
		pending := f.giveUp(c, inj)
		require.NoError(t, inj.Release())
		require.True(t, f.exists(f.key()))
		// Its answer is lost as well.
		lost := f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropResponse, Times: 2})
		require.NoError(t, pending.Discard(ctxT(t), f.prefix+"also"))
		require.Equal(t, 2, lost.Hits())
		require.False(t, f.exists(f.key()) || f.exists(f.prefix+"also"))
	}
}

// L1: settling one creation voids another one that is under way; that one notices
// and is made again.
func TestTrapL1ConcurrentRaise(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Shared(t))
	inj := f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldRequest})
	created := make(chan error, 1)
	go func() {
		_, err := f.fence.Create(ctxT(t), f.creation())
		created <- err
	}()
	require.NoError(t, inj.WaitHit(ctxT(t)))
	other := f.creation()
	other.Key = f.prefix + "other"
	f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropResponse})
	f.create(other)
	require.Greater(t, f.get(f.presence()).Kvs[0].ModRevision, f.fence.Born())
	require.NoError(t, inj.Release())
	require.False(t, inj.LateResponses()[0].Response.(*etcdserverpb.TxnResponse).Succeeded)
	require.NoError(t, <-created)
	require.True(t, f.exists(f.key()))
}

// One raise settles all creations that were sent before it: the others only look.
func TestRaisedOnceForAll(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Shared(t))
	const all = 8
	var answered sync.WaitGroup
	answered.Add(all)
	f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropResponse, Times: all,
		After: func() { answered.Done(); answered.Wait() }})
	created := make(chan error, all)
	for i := range all {
		c := f.creation()
		c.Key = fmt.Sprint(f.prefix, "many", i)
		go func() {
			_, err := f.fence.Create(ctxT(t), c)
			created <- err
		}()
	}
	for range all {
		require.NoError(t, <-created)
	}
	require.EqualValues(t, 2, f.get(f.presence()).Kvs[0].Version)
}

// F46: clientv3 has repeated the Txn, the second copy failed on the first, and
// then etcd is out of reach. That is no proof that no key exists.
func TestTrapL1RepeatedByClient(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Shared(t))
	f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropResponse, Err: status.Error(codes.Canceled, "reset by the server")})
	f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.Pass})
	inj := f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldRequest})
	pending := f.giveUp(f.creation(), inj)
	require.True(t, f.exists(f.key()))
	require.NoError(t, pending.Discard(ctxT(t)))
	require.False(t, f.exists(f.key()))
}

// F20: with the lease the session is gone, also when it goes in the middle of a
// creation.
func TestCreateOnLostLease(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Shared(t))
	inj := f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldRequest})
	pending := f.giveUp(f.creation(), inj)
	held := f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldRequest})
	created := make(chan error, 1)
	go func() {
		_, err := f.fence.Create(ctxT(t), f.creation())
		created <- err
	}()
	require.NoError(t, held.WaitHit(ctxT(t)))
	require.NoError(t, f.cluster.RevokeLease(ctxT(t), f.lease))
	require.NoError(t, held.Release())
	require.ErrorIs(t, <-created, commit.ErrGone)
	_, err := f.fence.Create(ctxT(t), f.creation())
	require.ErrorIs(t, err, commit.ErrGone)
	require.NoError(t, inj.Release())
	require.NoError(t, pending.Discard(ctxT(t)), "nothing can appear any more")
	_, err = commit.Raise(ctxT(t), f.client, f.lease, f.presence(), "here")
	require.ErrorIs(t, err, commit.ErrGone)
	require.False(t, f.exists(f.key()) || f.exists(f.presence()))

	// Another process put its own presence key there: it is not this session's.
	_, err = f.client.Put(ctxT(t), f.presence(), "")
	require.NoError(t, err)
	_, err = f.fence.Create(ctxT(t), f.creation())
	require.ErrorIs(t, err, commit.ErrGone)
}

// L3, F45: no space. A creation fails at once, whether or not it was applied; it
// can be discarded, and keys can be removed, while space is still short.
func TestTrapL3NoSpace(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Start(t, nil))
	token := f.create(f.creation())
	require.NoError(t, f.cluster.SetNoSpace(ctxT(t), true))
	c := f.creation()
	c.Key = f.prefix + "other"
	_, err := f.fence.Create(ctxT(t), c)
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	var pending *commit.PendingError
	require.ErrorAs(t, err, &pending)
	require.NoError(t, pending.Discard(ctxT(t)))
	removal, err := commit.Remove(ctxT(t), f.client, f.key(), token)
	require.NoError(t, err)
	require.Equal(t, commit.Removed, removal)
	_, err = commit.RemoveWith(ctxT(t), f.client, f.key(), token, []clientv3.Op{clientv3.OpPut(f.prefix+"x", "")})
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	_, _, err = commit.Swap(ctxT(t), f.client, f.prefix+"limit", 0, "1", func([]byte) commit.Found { return commit.Another })
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	resp, err := f.cluster.Client().Grant(context.WithoutCancel(ctxT(t)), 60)
	if err == nil {
		_, err = commit.Raise(ctxT(t), f.client, resp.ID, f.prefix+"alive2", "")
	}
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
}

// L3: "no space" can follow an applied Txn. The key is removed all the same.
func TestTrapL3NoSpaceAfterApplied(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Start(t, nil))
	f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropResponse, Err: rpctypes.ErrGRPCNoSpace})
	_, err := f.fence.Create(ctxT(t), f.creation())
	var pending *commit.PendingError
	require.ErrorAs(t, err, &pending)
	require.True(t, f.exists(f.key()))
	require.NoError(t, f.cluster.SetNoSpace(ctxT(t), true))
	require.NoError(t, pending.Discard(ctxT(t)))
	require.False(t, f.exists(f.key()))
}

// L1 and L3 together: an answer is lost, and then there is no space to raise the
// fence. What exists is removed, but the creation counts as settled only when the
// fence has been raised: the late copy would land.
func TestTrapL1NoSpaceToSettle(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Start(t, nil))
	inj := f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldRequest})
	pending := f.giveUp(f.creation(), inj)
	require.NoError(t, f.cluster.SetNoSpace(ctxT(t), true))
	brief, cancel := context.WithTimeout(ctxT(t), 300*time.Millisecond)
	defer cancel()
	require.Error(t, pending.Discard(brief))
	require.NoError(t, f.cluster.SetNoSpace(ctxT(t), false))
	require.NoError(t, inj.Release())
	require.True(t, f.exists(f.key()), "the late copy has landed: it was not shut out")

	require.NoError(t, f.cluster.SetNoSpace(ctxT(t), true))
	longer, giveUp := context.WithCancel(ctxT(t))
	defer giveUp()
	discarded := make(chan error, 1)
	go func() { discarded <- pending.Discard(longer) }()
	require.Eventually(t, func() bool { return !f.exists(f.key()) }, testkit.Soon, 5*time.Millisecond, "it is removed although it cannot be settled yet")
	giveUp()
	require.Error(t, testkit.Got(t, discarded, "Discard returns"))
	require.NoError(t, f.cluster.SetNoSpace(ctxT(t), false))
	require.NoError(t, pending.Discard(ctxT(t)))
}

// L1, L3: the same, where "no space" met the settling inside Create.
func TestTrapL1NoSpaceInsideCreate(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Start(t, nil))
	f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.Duplicate}) // a copy is under way
	f.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.FailWith, Err: rpctypes.ErrGRPCNoSpace})
	_, err := f.fence.Create(ctxT(t), f.creation())
	var pending *commit.PendingError
	require.ErrorAs(t, err, &pending)
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	before := f.get(f.presence()).Kvs[0].ModRevision
	require.NoError(t, pending.Discard(ctxT(t)))
	require.False(t, f.exists(f.key()))
	require.Greater(t, f.get(f.presence()).Kvs[0].ModRevision, before, "the fence was raised")
}

// The fence itself: the answer to its first put is lost.
func TestRaiseUnanswered(t *testing.T) {
	t.Parallel()
	c := embedtest.Shared(t)
	for _, do := range []embedtest.Action{embedtest.DropResponse, embedtest.FailWith, embedtest.Duplicate} {
		client, prefix := c.NewClient(t, nil), c.Prefix(t)
		resp, err := client.Grant(ctxT(t), 60)
		require.NoError(t, err)
		inj := client.Inject(embedtest.Fault{Method: "Txn", Do: do})
		fence, err := commit.Raise(ctxT(t), client, resp.ID, prefix, "")
		require.NoError(t, err)
		require.NoError(t, inj.Release())
		got, err := c.Client().Get(ctxT(t), prefix)
		require.NoError(t, err)
		require.Equal(t, got.Kvs[0].CreateRevision, fence.Born())
	}
}
