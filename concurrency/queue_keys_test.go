package concurrency_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
)

// Two requests that a foreign batch creates at one revision are distinguished by
// their keys, in the same way by all: by those who list and by those who watch.
// (Requests of queues do not go together by group commit, where the trap was found;
// for what does see commit.Group.)
func TestTrapS1Batches(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sm)
	slot := f.Keys("queue/light/")[0]
	require.NoError(t, p.Release(ctx))
	f.sees(ctx, sm) // it watches from here on
	base := strings.TrimSuffix(slot, "0000")
	var puts []clientv3.Op
	for _, number := range []string{"0010", "0009", "0011"} {
		puts = append(puts, clientv3.OpPut(base+number, `{"v":1,"nonce":"n","note":"`+number+`","at":1}`, clientv3.WithLease(s.Lease())))
	}
	resp, err := f.Client().Txn(ctx).Then(puts...).Commit()
	require.NoError(t, err)
	other, _ := f.Session(nil)
	for range 8 { // what is left to chance would come out otherwise once
		listed, err := sem(t, other, "x", 1).Status(ctx)
		require.NoError(t, err)
		for _, st := range []concurrency.Status{listed, f.sees(ctx, sm)} {
			require.Equal(t, 1, st.Used)
			require.Len(t, st.Waiters, 2)
			require.Equal(t, resp.Header.Revision, st.Holders[0].Token)
			require.Equal(t, []string{"0009", "0010", "0011"}, []string{st.Holders[0].Note, st.Waiters[0].Note, st.Waiters[1].Note})
		}
	}
}

// A slot that is put again, for a new owner or by hand, does not carry the former
// owner's rights on: its guard fails, although the create revision is the same.
// Without a lease it is ignored.
func TestTrapS2OwnershipByPut(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(nil)
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sm)
	slot := f.Keys("queue/light/")[0]
	_, err := f.Client().Put(ctx, slot, `{"v":1,"owner":"thief"}`, clientv3.WithLease(s.Lease()))
	require.NoError(t, err)
	// With a read: a Txn of nothing but conditions is answered from the memory of
	// one member, which may lag behind.
	resp, err := c.Txn(ctx).If(p.Guard()).Then(clientv3.OpGet(slot)).Commit()
	require.NoError(t, err)
	require.False(t, resp.Succeeded, "the key is not what the permit was granted for")
	_, err = sm.TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull, "it keeps its place, on a lease")
	_, err = f.Client().Put(ctx, slot, `{"v":1,"owner":"thief"}`)
	require.NoError(t, err)
	st, err := sm.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, st.Foreign)
	require.Zero(t, st.Used)
	_ = p.Release(ctx)
}

// Rank depends on names and create revisions, never on a value that a client can
// overwrite or that cannot be read.
func TestTrapS7MutableRankInputs(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	sm := sem(t, s, "x", 4)
	p := acquire(t, ctx, sm, concurrency.Weight(3))
	w := ask(t, ctx, sm, concurrency.Weight(2))
	for _, value := range []string{`{"v":1,"weight":1}`, "\xff not JSON", `{"v":99}`, ""} {
		for _, key := range f.Keys("queue/") {
			_, err := f.Client().Put(ctx, key, value, clientv3.WithLease(s.Lease()))
			require.NoError(t, err)
		}
		st, err := sm.Status(ctx)
		require.NoError(t, err)
		require.Equal(t, 3, st.Used)
		require.Len(t, st.Waiters, 1)
		require.Zero(t, st.Foreign)
		waiting(t, w, "the holder's weight is what it was")
	}
	require.NoError(t, p.Release(ctx))
	require.NoError(t, granted(t, w, "the waiter").Release(ctx))
}

// F39, T15, T13: keys that do not belong there block no request and are reported. For what they
// cost see TestForeignKeyCostsNoRead.
func TestForeignKeysBlockNoRequest(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sm)
	slot := f.Keys("queue/light/")[0]
	require.NoError(t, p.Release(ctx))
	base := slot[:len(slot)-len("0000000000000000-0000")]
	for _, key := range []string{
		base + "0000000000000001-0000", // one of ours in form, but on no lease
		base + "nonsense", base, base + "\xff",
	} {
		_, err := f.Client().Put(ctx, key, "{")
		require.NoError(t, err)
	}
	p = acquire(t, ctx, sm)
	st, err := sm.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, 4, st.Foreign)
	require.Equal(t, 1, st.Used)
	_, err = sm.TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull)
	w := ask2(ctx, sm)
	require.NoError(t, p.Release(ctx))
	p = granted(t, w, "past the foreign keys")
	require.NoError(t, p.Release(ctx))
	p, err = sm.TryAcquire(ctx)
	require.NoError(t, err)
	require.NoError(t, p.Release(ctx))
}

// No caller can ask a mutex for a weight above 1, so a key that does so is foreign, even on a
// lease that lives: to those who wait as to those who come when it is free.
func TestHeavyKeyBlocksNoMutex(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	other, _ := f.Session(nil)
	mu := mutex(t, s, "x")
	p, err := mu.Lock(ctx)
	require.NoError(t, err)
	base, _, _ := strings.Cut(f.Keys("queue/light/")[0], "light/")
	key := fmt.Sprintf("%sheavy/2/%016x-0004", base, int64(other.Lease()))
	_, err = f.Client().Put(ctx, key, "{", clientv3.WithLease(other.Lease()))
	require.NoError(t, err)
	waits := make(chan *concurrency.Permit, 1)
	go func() { q, _ := mutex(t, other, "x").Lock(ctx); waits <- q }()
	require.Eventually(t, func() bool {
		st, err := mu.Status(ctx)
		return err == nil && len(st.Waiters) == 1 && st.Foreign == 1
	}, soon, tick)
	require.NoError(t, p.Release(ctx))
	require.NoError(t, got(t, waits, "past the heavy key").Release(ctx))
	p, err = mu.TryLock(ctx)
	require.NoError(t, err)
	require.NoError(t, p.Release(ctx))
}
