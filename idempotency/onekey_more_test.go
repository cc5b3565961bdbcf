package idempotency_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/doctor"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// one is a recovery point with the number of the attempt that has recorded it.
func one(t testing.TB, at *idempotency.Attempt) int {
	t.Helper()
	v, err := idempotency.Step(at, "one", func(context.Context) (int, error) { return at.Attempt(), nil })
	require.NoError(t, err)
	return v
}

// K6: the caller of a claim over a record gives up, and the claim arrives later, while the record is still as it was read: a
// claim that compares only that would be applied, and execute nothing for as long as its session lives.
func TestTrapK6ClaimOverARecord(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*idempotency.Attempt, context.Context) error{
		"released": (*idempotency.Attempt).Release, "lost": (*idempotency.Attempt).Abandon,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			a, b := f.instance(nil, nil), f.instance(nil, nil)
			first := begin(t, b, key("1"))
			require.Equal(t, 1, one(t, first))
			require.NoError(t, end(first, ctxT(t)))
			before := b.record(t, key("1"))
			inj := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Do: embedtest.HoldRequest})
			short, cancel := context.WithCancel(ctxT(t))
			done := make(chan error, 1)
			go func() {
				_, _, err := a.Begin(short, key("1"), "payload")
				done <- err
			}()
			require.NoError(t, inj.WaitHit(ctxT(t)))
			cancel()
			require.ErrorIs(t, got(t, done, "the call returns"), context.Canceled)
			require.Eventually(t, func() bool { return idempotency.Withdrawals(a.Store) == 0 }, soon, 5*time.Millisecond)
			require.NoError(t, inj.Release())
			late := inj.LateResponses()
			require.Len(t, late, 1)
			require.NoError(t, late[0].Err)
			require.False(t, late[0].Response.(*etcdserverpb.TxnResponse).Succeeded)
			require.Equal(t, before, b.record(t, key("1")))
			next := begin(t, b, key("1"), idempotency.Wait(0))
			require.Equal(t, 2, next.Attempt())
			require.Equal(t, 1, one(t, next))
		})
	}
}

// K6: a claim over a record is taken back while etcd is out of space: the record that was there cannot be put, so the request
// is in progress until there is space.
func TestTrapK6TakenBackWithoutSpace(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	first := begin(t, b, key("1"))
	require.Equal(t, 1, one(t, first))
	require.NoError(t, first.Release(ctxT(t)))
	full := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isCommit, Do: embedtest.FailWith, Times: -1, Err: rpctypes.ErrGRPCNoSpace})
	a.claimsInVain(t, key("1"))
	require.NoError(t, full.WaitHit(ctxT(t)))
	rejected(t, b, key("1"))
	full.Remove()
	f.noneWorks()
	next := begin(t, b, key("1"))
	require.Equal(t, 2, next.Attempt())
	require.Equal(t, 1, one(t, next))
}

// K7: (a) the recovery points of the first attempt are there for the third, on its lease, when that of the first has gone; (b)
// they go with their record; (c) they do not count as requests; (d) a claim over any number of them is one put.
func TestTrapK7RecoveryPoints(t *testing.T) {
	t.Parallel()
	const many = 150 // more than the operations of a Txn
	f := shared(t)
	opts := &idempotency.Options{MaxPerScope: 2}
	a, b, c := f.instance(nil, opts), f.instance(nil, opts), f.instance(nil, opts)
	at := begin(t, a, key("1"))
	steps := func(at *idempotency.Attempt) (recorded int) {
		for n := range many {
			v, err := idempotency.Step(at, fmt.Sprint(n), func(context.Context) (int, error) { return at.Attempt(), nil })
			require.NoError(t, err)
			if v < at.Attempt() {
				recorded++
			}
		}
		return recorded
	}
	require.Zero(t, steps(at))
	n, err := a.CountScope(ctxT(t), key("1").Scope)
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	require.NoError(t, begin(t, b, key("2")).Commit(ctxT(t), nil), "a second request of the scope")
	lease := func() clientv3.LeaseID {
		resp, err := f.Client().Get(ctxT(t), f.working()[0])
		require.NoError(t, err)
		return clientv3.LeaseID(resp.Kvs[0].Lease)
	}
	former := lease()
	a.crash(t, f)
	claim := b.client.Inject(embedtest.Fault{Method: "Txn", Match: func(method string, msg any) bool {
		return isClaim(method, msg) && len(msg.(*etcdserverpb.TxnRequest).Success) == 1
	}})
	require.Equal(t, 2, begin(t, b, key("1")).Attempt())
	require.Equal(t, 1, claim.Hits())
	require.NotEqual(t, former, lease())
	require.NoError(t, f.RevokeLease(ctxT(t), former))
	b.crash(t, f)
	at = begin(t, c, key("1"))
	require.Equal(t, 3, at.Attempt())
	require.Equal(t, many, steps(at))
	require.NoError(t, at.Abandon(ctxT(t)))
	require.NoError(t, c.Delete(ctxT(t), at.Ref(), idempotency.EvenIfAlive()))
	other, _, err := c.Begin(ctxT(t), key("1"), "another payload")
	require.NoError(t, err)
	require.Zero(t, steps(other))
}

// K11: etcd refuses a Txn that compares a key outside the role. A role for a store and for all sessions suffices, also for
// what compares the presence key of another process; one for requests alone does not, and doctor says so.
func TestTrapK11WhoComparesThePresenceKey(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, nil)
	ctx := ctxT(t)
	space, err := keyspace.New(keyspace.DefaultPrefix, "payments")
	require.NoError(t, err)
	root := space.Root()
	require.NoError(t, c.AddUser(ctx, "app", "secret", root+"session/", root+"idempotency/store/"))
	require.NoError(t, c.AddUser(ctx, "part", "secret", root+"idempotency/"))
	require.NoError(t, c.EnableAuth(ctx, "admin", "secret"))
	dial := func(user string) *embedtest.Client {
		return c.NewClient(t, &embedtest.ClientOptions{Username: user, Password: "secret"})
	}
	store := func() instance {
		client := dial("app")
		s, err := concurrency.NewSession(ctx, client.Client, "payments", nil)
		require.NoError(t, err)
		t.Cleanup(func() {
			short, cancel := context.WithTimeout(context.Background(), testkit.Grace)
			defer cancel()
			_ = s.Close(short)
		})
		st, err := idempotency.NewStore(s, "store", nil)
		require.NoError(t, err)
		return instance{st, s, client}
	}
	a, b := store(), store()
	at := begin(t, a, key("1"))
	guarded := func(by *embedtest.Client) error {
		_, err := by.Txn(ctx).If(at.Guard()...).Then(clientv3.OpGet(root + "idempotency/store/effect")).Commit()
		return err
	}
	require.NoError(t, guarded(b.client))
	require.ErrorIs(t, guarded(dial("part")), rpctypes.ErrPermissionDenied)
	rejected(t, b, key("1"))
	require.Equal(t, idempotency.InProgress, b.record(t, key("1")).State)
	require.NoError(t, c.ExpireLease(ctx, a.sess.Lease()))
	require.Equal(t, 2, begin(t, b, key("1")).Attempt(), "what compares that it does not exist")

	grants, err := doctor.Permissions(ctx, dial("part"), space)
	require.NoError(t, err)
	require.False(t, slices.Contains(grants.Read, keyspace.SessionPart))
	require.Equal(t, doctor.Fail, grants.Findings(root)[0].Level)
	require.Contains(t, grants.Findings(root)[0].Text, keyspace.SessionPart)
}

// K12: an attempt is of its session's lease, and not of the session: on the next lease of the same session it is lost like
// that of another process, for each Store of the session.
func TestTrapK12OwnAttemptOfAFormerLease(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, nil)
	other, err := idempotency.NewStore(a.sess, "store", nil)
	require.NoError(t, err)
	at := begin(t, a, key("1"))
	former := a.sess.Lease()
	require.NoError(t, f.ExpireLease(ctxT(t), former))
	closed(t, at.Context().Done(), "it is lost")
	require.Eventually(t, func() bool { l := a.sess.Lease(); return l != 0 && l != former }, soon, 5*time.Millisecond)
	next, _, err := other.Begin(ctxT(t), key("1"), "payload", idempotency.Wait(0))
	require.NoError(t, err)
	require.Equal(t, 2, next.Attempt())
	require.ErrorIs(t, at.Commit(ctxT(t), nil), idempotency.ErrFenced)
	require.NoError(t, next.Commit(ctxT(t), []byte("x")))
	require.Equal(t, "x", string(replayed(t, a, key("1")).Value))
}
