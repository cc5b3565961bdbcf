package idempotency_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// The orders of events that a request with one key has to survive. Their numbers are those of design note 48.

// isPair matches the read of a record and of its owner's presence key.
func isPair(_ string, msg any) bool {
	r, ok := msg.(*etcdserverpb.TxnRequest)
	return ok && len(r.Success) == 2 && strings.Contains(string(r.Success[0].GetRequestRange().GetKey()), "/record/") &&
		strings.HasSuffix(string(r.Success[1].GetRequestRange().GetKey()), "/alive")
}

// listed returns the states of the records that a filter selects.
func (f fixture) listed(in instance, of idempotency.Filter) map[idempotency.Ref]idempotency.State {
	f.T.Helper()
	states := map[idempotency.Ref]idempotency.State{}
	for r, err := range in.List(ctxT(f.T), of) {
		require.NoError(f.T, err)
		states[r.Ref] = r.State
	}
	return states
}

// K1: the owner records its outcome and ends its session while a duplicate, which has read its record, looks whether the
// owner lives. The request is done, and not unknown.
func TestTrapK1TwoRevisions(t *testing.T) {
	t.Parallel()
	f := shared(t)
	refuse := &idempotency.Options{OnLost: idempotency.Refuse}
	b := f.instance(nil, refuse)
	for id, done := range map[string]func(k idempotency.Key) bool{
		"a call": func(k idempotency.Key) bool { return string(replayed(t, b, k).Value) == "x" },
		"Get": func(k idempotency.Key) bool {
			r, _, err := b.Get(ctxT(t), b.Ref(k))
			return err == nil && r.State == idempotency.Done
		},
		"List": func(k idempotency.Key) bool { return f.listed(b, idempotency.Filter{})[b.Ref(k)] == idempotency.Done },
		"List of it": func(k idempotency.Key) bool {
			return f.listed(b, idempotency.Filter{Refs: []idempotency.Ref{b.Ref(k)}})[b.Ref(k)] == idempotency.Done
		},
	} {
		a := f.instance(nil, refuse)
		at := begin(t, a, key(id))
		inj := b.client.Inject(embedtest.Fault{Method: "Txn", Match: isPair, Before: func() {
			if err := errors.Join(at.Commit(context.Background(), []byte("x")), a.sess.Close(context.Background())); err != nil {
				t.Error(err)
			}
		}})
		require.True(t, done(key(id)), id)
		require.Equal(t, 1, inj.Hits(), id)
	}

	// Resolve and Delete compare what they have read: another attempt has begun since, and ended.
	c := f.instance(nil, refuse)
	begin(t, c, key("2"))
	c.crash(t, f)
	var err error
	other := b.client.Inject(embedtest.Fault{Method: "Txn", Match: isRelease, Before: func() {
		err = f.instance(nil, refuse).Resolve(context.Background(), b.Ref(key("2")), idempotency.NotDone())
	}})
	require.ErrorIs(t, b.Delete(ctxT(t), b.Ref(key("2"))), idempotency.ErrConflict)
	require.NoError(t, err)
	require.Equal(t, 1, other.Hits())
}

// K2: the session of an attempt has ended, and no other attempt has begun: the guard fails, so what an operator sees then
// is all that the attempt has done.
func TestTrapK2GuardOutlivesItsSession(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, nil)
	at := begin(t, a, key("1"))
	require.True(t, f.guarded(at))
	require.NoError(t, f.ExpireLease(ctxT(t), a.sess.Lease()))
	require.False(t, f.guarded(at))
	require.Len(t, f.working(), 1, "the record is as it was")
}

// K3: the guard of an attempt is met from its beginning to its end: recovery points, notes, and what settles an unmet
// Attach after a lost answer write the record again.
func TestTrapK3GuardOfALiveAttempt(t *testing.T) {
	t.Parallel()
	f := shared(t)
	for name, end := range map[string]func(*idempotency.Attempt, context.Context) error{
		"commit": func(at *idempotency.Attempt, ctx context.Context) error { return at.Commit(ctx, nil) }, "release": (*idempotency.Attempt).Release, "abandon": (*idempotency.Attempt).Abandon,
	} {
		a := f.instance(nil, nil)
		at := begin(t, a, key(name))
		guard := at.Guard()
		holds := func() bool {
			resp, err := f.Client().Txn(ctxT(t)).If(guard...).Then(clientv3.OpPut(f.Root+"effect", "")).Commit()
			require.NoError(t, err)
			return resp.Succeeded
		}
		require.True(t, holds())
		_, err := idempotency.Step(at, "one", func(context.Context) (int, error) { return 1, nil })
		require.NoError(t, err)
		require.NoError(t, at.SetNote("order 7"))
		require.True(t, holds())
		at.Attach([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(f.Root+"none"), "!=", 0)})
		inj := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isCommit, Do: embedtest.DropResponse})
		require.ErrorIs(t, at.Commit(ctxT(t), nil), idempotency.ErrConflict)
		require.Equal(t, 1, inj.Hits())
		require.True(t, holds())
		require.NoError(t, end(at, ctxT(t)))
		require.False(t, holds(), name)
		if name == "release" || name == "abandon" {
			next := begin(t, a, key(name))
			require.False(t, holds(), "of the next attempt")
			require.True(t, f.guarded(next))
		}
	}
}

// K4: the lease of the record ends, as by hand, while session and function live. Another attempt may begin, so the
// attempt's context ends, with the next renewal of that lease.
func TestTrapK4LeaseOfTheRecord(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(brisk(), nil), f.instance(nil, nil)
	at := begin(t, a, key("1"))
	resp, err := f.Client().Get(ctxT(t), f.working()[0])
	require.NoError(t, err)
	require.NoError(t, f.RevokeLease(ctxT(t), clientv3.LeaseID(resp.Kvs[0].Lease)))
	next := begin(t, b, key("1"))
	closed(t, at.Context().Done(), "its context ends")
	require.ErrorIs(t, at.Err(), idempotency.ErrLost)
	require.ErrorContains(t, at.Err(), "the lease of its record does not exist any more")
	require.NotZero(t, a.sess.Lease(), "the session lives")
	require.ErrorIs(t, at.Commit(ctxT(t), []byte("a")), idempotency.ErrFenced)
	require.NoError(t, next.Commit(ctxT(t), []byte("b")))
	require.Equal(t, "b", string(replayed(t, a, key("1")).Value))
	require.NoError(t, begin(t, a, key("2")).Commit(ctxT(t), nil), "on another lease")
}

// K8: an attempt is given up while etcd is out of space. Until there is space it is in progress for others, also under
// Refuse; Close does not wait for it, and the end of the session says that it is lost.
func TestTrapK8AbandonWithoutSpace(t *testing.T) {
	t.Parallel()
	f := shared(t)
	opts := &idempotency.Options{OnLost: idempotency.Refuse}
	a, b := f.instance(nil, opts), f.instance(nil, opts)
	full := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isLoss, Do: embedtest.FailWith, Times: -1, Err: rpctypes.ErrGRPCNoSpace})
	for _, id := range []string{"1", "2"} {
		short, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		require.ErrorIs(t, begin(t, a, key(id)).Abandon(short), idempotency.ErrNotRecorded)
		cancel()
		rejected(t, b, key(id))
		if id == "1" {
			full.Remove()
			require.Eventually(t, func() bool {
				_, _, err := b.Begin(ctxT(t), key(id), "payload", idempotency.Wait(0))
				return errors.Is(err, idempotency.ErrUnknown)
			}, soon, 5*time.Millisecond)
			full = a.client.Inject(embedtest.Fault{Method: "Txn", Match: isLoss, Do: embedtest.FailWith, Times: -1, Err: rpctypes.ErrGRPCNoSpace})
		}
	}
	require.NoError(t, a.sess.Close(ctxT(t)))
	_, _, err := b.Begin(ctxT(t), key("2"), "payload", idempotency.Wait(0))
	require.ErrorIs(t, err, idempotency.ErrUnknown)
}

// K9: an attempt counts as lost after MaxExecution, and what it commits late counts if no other one has begun: its own
// drop does not fence it, also if the answer to that was lost.
func TestTrapK9LateCommit(t *testing.T) {
	t.Parallel()
	for name, what := range map[string]embedtest.Action{"answered": embedtest.Pass, "answer lost": embedtest.DropResponse, "sent twice": embedtest.Duplicate} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			a, b := f.instance(nil, nil), f.instance(nil, nil)
			inj := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isLoss, Do: what})
			at := begin(t, a, key("1"), idempotency.MaxExecution(time.Second), idempotency.OnLost(idempotency.Refuse))
			require.NoError(t, inj.WaitHit(ctxT(t)))
			f.noneWorks()
			require.False(t, f.guarded(at))
			_, _, err := b.Begin(ctxT(t), key("1"), "payload", idempotency.Wait(0))
			require.ErrorIs(t, err, idempotency.ErrUnknown)
			require.NoError(t, at.Commit(ctxT(t), []byte("late")))
			_ = inj.Release()
			require.Equal(t, "late", string(replayed(t, b, key("1")).Value))
		})
	}
}

// K12: two Stores of one name on one session. The claim of one is taken back, after its session was lost: to the other it
// is neither an attempt nor a lost one.
func TestTrapK12TwoStoresOfOneSession(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		f := shared(t)
		opts := &idempotency.Options{OnLost: idempotency.Refuse}
		a := f.instance(nil, opts)
		other, err := idempotency.NewStore(a.sess, "store", opts)
		require.NoError(t, err)
		inj := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Do: embedtest.HoldResponse, After: func() {
			if lost {
				if err := f.ExpireLease(ctxT(t), a.sess.Lease()); err != nil {
					t.Error(err)
				}
			}
		}})
		short, cancel := context.WithCancel(ctxT(t))
		done := make(chan error, 1)
		go func() {
			_, _, err := a.Begin(short, key("1"), "payload")
			done <- err
		}()
		require.NoError(t, inj.WaitHit(ctxT(t)))
		cancel()
		require.ErrorIs(t, got(t, done, "the call returns"), context.Canceled)
		at, _, err := other.Begin(ctxT(t), key("1"), "payload")
		require.NoError(t, err)
		require.Equal(t, 1, at.Attempt())
		_ = inj.Release()
		rejected(t, a, key("1"))
		require.NoError(t, at.Commit(ctxT(t), []byte("x")))
		require.Equal(t, "x", string(replayed(t, a, key("1")).Value))
	}
}
