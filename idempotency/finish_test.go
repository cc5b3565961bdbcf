package idempotency_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// I22: the client disconnects while the function runs, or just as it returns. The function continues,
// and its outcome is recorded.
func TestClientHangsUp(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	type value struct{}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), value{}, "kept"))
	res, err := idempotency.Do(ctx, a.Store, key("1"), "payload", func(ctx context.Context, at *idempotency.Attempt) (string, error) {
		cancel()
		in, ok := idempotency.FromContext(ctx)
		require.True(t, ok)
		require.Same(t, at, in)
		require.Equal(t, "kept", ctx.Value(value{}))
		return "x", ctx.Err()
	})
	require.NoError(t, err)
	require.Equal(t, "x", res.Value)
	require.Equal(t, `"x"`, string(replayed(t, b, key("1")).Value))

	// By hand: the caller of Commit has gone, and it is recorded all the same.
	at := begin(t, a, key("2"))
	err = at.Commit(ctx, []byte("y"))
	require.ErrorIs(t, err, idempotency.ErrNotRecorded)
	require.ErrorIs(t, err, context.Canceled)
	_, rec, err := b.Begin(ctxT(t), key("2"), "payload")
	require.NoError(t, err)
	require.Equal(t, "y", string(rec.Value))
	require.ErrorIs(t, at.Release(ctxT(t)), idempotency.ErrSettled)
}

// I23: etcd cannot be reached when the function has returned. The key stays claimed, and the outcome is
// recorded as soon as possible.
func TestCommitWithoutEtcd(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	var calls atomic.Int64
	inj := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isCommit, Do: embedtest.FailWith, Times: -1})
	at := begin(t, a, key("1"))
	calls.Add(1)
	short, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	err := at.Commit(short, []byte("x"))
	require.ErrorIs(t, err, idempotency.ErrNotRecorded)
	require.True(t, at.Certain(err), "nothing but the loss of the session is in its way")
	rejected(t, a, key("1"))
	rejected(t, b, key("1"))
	require.EqualValues(t, 1, a.Stats().Pending)
	require.ErrorIs(t, at.Commit(ctxT(t), []byte("again")), idempotency.ErrSettled)
	require.ErrorIs(t, at.Release(ctxT(t)), idempotency.ErrSettled)
	shut := make(chan error, 1)
	go func() { shut <- a.sess.Close(ctxT(t)) }()
	inj.Remove()
	require.NoError(t, got(t, shut, "Close waits for the outcome"))
	require.Equal(t, "x", string(replayed(t, b, key("1")).Value))
	require.Zero(t, a.Stats().Pending)
}

// I24: a panic or Goexit is handled as OnPanic says, by default as a lost attempt, and is passed on to
// the caller.
func TestPanicAndGoexit(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	forgets, err := idempotency.NewStore(a.sess, a.Name(), &idempotency.Options{OnPanic: idempotency.Forget})
	require.NoError(t, err)
	store := a.Store
	call := func(id string, fn func(), opts ...idempotency.Option) (panicked any) {
		done := make(chan any)
		go func() {
			defer func() { done <- recover() }()
			_, _ = idempotency.Do(ctxT(t), store, key(id), "payload", func(context.Context, *idempotency.Attempt) (int, error) {
				fn()
				return 0, nil
			}, opts...)
		}()
		return got(t, done, "it ends")
	}
	fails := errors.New("as http.ErrAbortHandler")
	for id, fn := range map[string]func(){"p": func() { panic(fails) }, "g": runtime.Goexit} {
		want := any(nil)
		if id == "p" {
			want = fails
		}
		require.Equal(t, want, call(id+"1", fn))
		require.Empty(t, f.working())
		next := begin(t, b, key(id+"1"))
		require.Equal(t, 2, next.Attempt(), "taken over")
		require.NoError(t, next.Release(ctxT(t)))

		require.Equal(t, want, call(id+"2", fn, idempotency.OnLost(idempotency.Refuse)))
		_, _, err := b.Begin(ctxT(t), key(id+"2"), "payload")
		require.ErrorIs(t, err, idempotency.ErrUnknown)

		require.Equal(t, want, call(id+"3", fn, idempotency.OnPanic(idempotency.Forget)))
		next = begin(t, b, key(id+"3"))
		require.Equal(t, 2, next.Attempt())
		require.NoError(t, next.Release(ctxT(t)))

		require.Equal(t, want, call(id+"4", fn, idempotency.OnPanic(idempotency.Remember)))
		require.True(t, replayed(t, b, key(id+"4")).Failed)

		store = forgets
		for n, opts := range [][]idempotency.Option{nil, {idempotency.OnPanic(idempotency.DefaultAction)}} {
			id := fmt.Sprint(id, 5+n)
			require.Equal(t, want, call(id, fn, opts...))
			r, _, err := b.Get(ctxT(t), b.Ref(key(id)))
			require.NoError(t, err)
			require.Equal(t, idempotency.Released, r.State, "Options.OnPanic is Forget")
		}
		store = a.Store
	}
}

// L3: etcd is out of space. An outcome is recorded when there is space again; a release succeeds.
func TestTrapL3NoSpace(t *testing.T) {
	t.Parallel()
	f := own(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	require.NoError(t, begin(t, b, key("0")).Commit(ctxT(t), []byte("before")))
	one, two := begin(t, a, key("1")), begin(t, a, key("2"))
	require.NoError(t, f.SetNoSpace(ctxT(t), true))
	short, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, one.Commit(short, []byte("x")), idempotency.ErrNotRecorded)
	require.NoError(t, two.Release(ctxT(t)), "it only deletes")
	rejected(t, b, key("1"))
	_, _, err := b.Begin(ctxT(t), key("3"), "payload")
	require.ErrorIs(t, err, idempotency.ErrNearQuota)
	require.Equal(t, "before", string(replayed(t, a, key("0")).Value), "replays continue")
	require.NoError(t, f.SetNoSpace(ctxT(t), false))
	_, rec, err := b.Begin(ctxT(t), key("1"), "payload")
	require.NoError(t, err)
	require.Equal(t, "x", string(rec.Value))
	f.noneWorks()
	require.Len(t, f.Keys("/record/"), 2)
}

// I20, I21: results of all sizes. The first caller gets what was done, whatever its size;
// nothing is done twice.
func TestSizes(t *testing.T) {
	t.Parallel()
	f := shared(t)
	opts := &idempotency.Options{MaxResult: 5 << 20}
	a, b := f.instance(nil, opts), f.instance(nil, opts)
	for _, size := range []int{0, 1, 128 << 10, 128<<10 + 1, 1 << 20, 1<<20 + 1, 5 << 20, 5<<20 + 1, 10 << 20} {
		value := make([]byte, size)
		_, _ = rand.Read(value)
		k := key(string(rune('a'+size%7)) + string(rune('a'+size>>10%26)))
		at := begin(t, a, k)
		require.NoError(t, at.Commit(ctxT(t), value))
		for _, in := range []instance{b, a, b} {
			rec := replayed(t, in, k)
			require.Equal(t, size > 5<<20, rec.Omitted, size)
			if !rec.Omitted {
				require.True(t, bytes.Equal(value, rec.Value), size)
			}
		}
		require.NoError(t, a.Delete(ctxT(t), a.Ref(k)))
		require.Empty(t, f.Values("/idempotency/"))
	}
	big := func(context.Context, *idempotency.Attempt) ([]byte, error) { return make([]byte, 6<<20), nil }
	res, err := idempotency.Do(ctxT(t), a.Store, key("do"), nil, big)
	require.NoError(t, err)
	require.Len(t, res.Value, 6<<20)
	_, err = idempotency.Do(ctxT(t), b.Store, key("do"), nil, big)
	require.ErrorIs(t, err, idempotency.ErrOmitted)
	require.EqualValues(t, 3, a.Stats().Omitted)
}

// A value that has no JSON is recorded as done: the work is not done again.
func TestValueWithoutJSON(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	bad := func(context.Context, *idempotency.Attempt) (any, error) { return func() {}, nil }
	res, err := idempotency.Do(ctxT(t), a.Store, key("1"), nil, bad)
	require.ErrorIs(t, err, idempotency.ErrInvalid)
	require.NotNil(t, res.Value)
	_, err = idempotency.Do(ctxT(t), b.Store, key("1"), nil, bad)
	require.ErrorIs(t, err, idempotency.ErrOmitted)
}

// A result in parts whose commit fails on the way: no duplicate gets a part of it.
func TestPartsAndFaults(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	value := bytes.Repeat([]byte("0123456789"), 300_000)
	for name, fault := range map[string]embedtest.Fault{
		"part lost":        {Skip: 1, Do: embedtest.FailWith},
		"answer lost":      {Skip: 2, Do: embedtest.DropResponse},
		"commit's is lost": {Skip: 3, Do: embedtest.DropResponse},
	} {
		fault.Method = "Txn"
		k := key(name)
		at := begin(t, a, k)
		inj := a.client.Inject(fault)
		require.NoError(t, at.Commit(ctxT(t), value))
		require.Equal(t, 1, inj.Hits())
		inj.Remove()
		require.True(t, bytes.Equal(value, replayed(t, b, k).Value))
	}
}

// I41: the lease for an outcome, or for attempts in progress, is gone when it is used.
func TestLeaseGone(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	revoke := func(k idempotency.Key) {
		for name := range f.Values("/idempotency/") {
			if strings.HasSuffix(name, string(a.Ref(k))) {
				resp, err := f.Client().Get(ctxT(t), name)
				require.NoError(t, err)
				require.NotZero(t, resp.Kvs[0].Lease)
				require.NoError(t, f.RevokeLease(ctxT(t), clientv3.LeaseID(resp.Kvs[0].Lease)))
				return
			}
		}
		require.FailNow(t, "no record")
	}
	for _, size := range []int{1, 1 << 20} {
		require.NoError(t, begin(t, a, key("0")).Commit(ctxT(t), nil))
		revoke(key("0"))
		k := key(strconv.Itoa(size))
		require.NoError(t, begin(t, a, k).Commit(ctxT(t), make([]byte, size)), "on another lease")
		require.Len(t, replayed(t, b, k).Value, size)
		revoke(k)
		a = f.instance(nil, nil) // for its cache
	}

	// The one of attempts in progress: such an attempt has no record any more, and records
	// none; new ones begin on another.
	at := begin(t, a, key("3"))
	revoke(key("3"))
	require.ErrorIs(t, at.Commit(ctxT(t), nil), idempotency.ErrFenced)
	f.noneWorks()
	require.NoError(t, begin(t, a, key("3")).Commit(ctxT(t), nil))
}

// A condition of the caller's own is not met, and an earlier copy of the commit comes late,
// when the condition would be met: the copy does nothing.
func TestLateCommitAfterConflict(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	cond, effect := f.Root+"cond", f.Root+"effect"
	at := begin(t, a, key("1"))
	at.Attach([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(cond), "!=", 0)}, clientv3.OpPut(effect, ""))
	// The first copy is kept; the caller gets an error that leaves the outcome open.
	inj := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isCommit, Do: embedtest.Duplicate})
	require.ErrorIs(t, at.Commit(ctxT(t), []byte("x")), idempotency.ErrConflict)
	require.Equal(t, 1, inj.Hits())
	require.NoError(t, at.Err())
	_, err := f.Client().Put(ctxT(t), cond, "")
	require.NoError(t, err)
	require.NoError(t, inj.Release())
	require.Empty(t, f.Keys("effect"))
	rejected(t, b, key("1"))
	at.Attach(nil, clientv3.OpPut(effect, ""))
	require.NoError(t, at.Commit(ctxT(t), []byte("y")))
	require.Len(t, f.Keys("effect"), 1)
	require.Equal(t, "y", string(replayed(t, b, key("1")).Value))
}

// If etcd refuses operations of the caller's own, Commit says so, and the caller can commit without.
func TestOperationsThatEtcdRefuses(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	twice := []clientv3.Op{clientv3.OpPut(f.Root+"x", "1"), clientv3.OpPut(f.Root+"x", "2")}
	at := begin(t, a, key("1"))
	at.Attach(nil, twice...)
	require.ErrorIs(t, at.Commit(ctxT(t), []byte("x")), idempotency.ErrInvalid)
	require.NoError(t, at.Err())
	rejected(t, b, key("1"))
	require.NoError(t, at.Commit(ctxT(t), []byte("y")))
	require.Equal(t, "y", string(replayed(t, b, key("1")).Value))

	_, err := idempotency.Do(ctxT(t), a.Store, key("2"), "payload", func(_ context.Context, at *idempotency.Attempt) (int, error) {
		at.Attach(nil, twice...)
		return 1, nil
	})
	require.ErrorIs(t, err, idempotency.ErrInvalid)
	_, _, err = b.Begin(ctxT(t), key("2"), "payload", idempotency.OnLost(idempotency.Refuse))
	require.ErrorIs(t, err, idempotency.ErrUnknown)
}

// The client is closed under calls without a bound: they return.
func TestClientClosed(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, nil)
	at := begin(t, a, key("1"))
	inj := a.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.FailWith, Times: -1})
	done := make(chan error, 2)
	go func() { done <- at.Commit(context.Background(), nil) }()
	go func() { _, _, err := a.Begin(context.Background(), key("2"), nil); done <- err }()
	require.Eventually(t, func() bool { return inj.Hits() > 3 }, soon, 5*time.Millisecond)
	require.NoError(t, a.client.Close())
	for range 2 {
		require.Error(t, got(t, done, "a call returns"))
	}
}

// A181: the answer to a Release is lost, its caller gives up, and another attempt has begun when the release is sent again. It
// was recorded, since no other attempt can have begun before: the attempt is not fenced.
func TestReleaseThatIsRepeatedBehindTheNext(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	at := begin(t, a, key("1"))
	short, cancel := context.WithCancel(ctxT(t))
	a.client.Inject(embedtest.Fault{Method: "Txn", Match: isRelease, Do: embedtest.DropResponse, After: cancel})
	next := make(chan *idempotency.Attempt, 1)
	again := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isRelease, Before: func() { next <- begin(t, b, key("1")) }})
	require.ErrorIs(t, at.Release(short), idempotency.ErrNotRecorded)
	require.NoError(t, again.WaitHit(ctxT(t)))
	require.Equal(t, 1, got(t, next, "the next attempt").Attempt())
	require.Eventually(t, func() bool { return a.Stats().Pending == 0 }, soon, 5*time.Millisecond)
	require.EqualValues(t, 1, a.Stats().Released)
	require.Zero(t, a.Stats().Fenced)
}
