package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// fails is a Codec that panics.
type fails struct{ encode, decode bool }

func (fails) Name() string { return "fails" }

func (f fails) Encode(b, _ []byte) ([]byte, error) {
	if f.encode {
		panic("encode")
	}
	return b, nil
}

func (f fails) Decode(b, _ []byte) ([]byte, error) {
	if f.decode {
		panic("decode")
	}
	return b, nil
}

// A panic in a callback of the caller, in the function or in another one, leaves no request without an
// end and no session that cannot be closed.
func TestPanicsOfCallbacks(t *testing.T) {
	t.Parallel()
	f := shared(t)
	one := func(context.Context, *idempotency.Attempt) (int, error) { return 1, nil }

	a := f.instance(nil, &idempotency.Options{Codec: fails{encode: true}})
	_, err := idempotency.Do(ctxT(t), a.Store, key("encode"), nil, one)
	require.NoError(t, err)
	_, err = idempotency.Do(ctxT(t), a.Store, key("encode"), nil, one)
	require.ErrorIs(t, err, idempotency.ErrOmitted, "it is done, and its result cannot be kept")
	require.NoError(t, a.sess.Close(ctxT(t)))

	b := f.instance(nil, &idempotency.Options{Codec: fails{decode: true}, CacheBytes: -1})
	_, err = idempotency.Do(ctxT(t), b.Store, key("decode"), nil, one)
	require.NoError(t, err)
	for range 2 {
		_, err = idempotency.Do(ctxT(t), b.Store, key("decode"), nil, one)
		require.ErrorIs(t, err, idempotency.ErrUnreadable)
		require.ErrorContains(t, err, "decode")
	}
	require.NoError(t, b.sess.Close(ctxT(t)))

	c, d := f.instance(nil, nil), f.instance(nil, nil)
	require.PanicsWithValue(t, "policy", func() {
		_, _ = idempotency.Do(ctxT(t), c.Store, key("policy"), nil, func(context.Context, *idempotency.Attempt) (int, error) { return 0, errors.New("x") },
			idempotency.OnError(func(error) idempotency.Action { panic("policy") }), idempotency.OnPanic(idempotency.Remember))
	})
	_, err = idempotency.Do(ctxT(t), d.Store, key("policy"), nil, one)
	require.ErrorIs(t, err, idempotency.ErrFailed)
	require.ErrorContains(t, err, "policy")
	require.NoError(t, c.sess.Close(ctxT(t)))
}

// Operations on a lease that is gone are refused at once, and cost no lease of the store's.
func TestOperationOnADeadLease(t *testing.T) {
	t.Parallel()
	f := own(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	require.NoError(t, begin(t, a, key("0")).Commit(ctxT(t), nil))
	g, err := f.Client().Grant(ctxT(t), 60)
	require.NoError(t, err)
	require.NoError(t, f.RevokeLease(ctxT(t), g.ID))
	before := a.client.Requests()["LeaseGrant"]
	at := begin(t, a, key("1"))
	at.Attach(nil, clientv3.OpPut(f.Root+"mine", "x", clientv3.WithLease(g.ID)))
	require.ErrorIs(t, at.Commit(ctxT(t), []byte("x")), idempotency.ErrInvalid)
	require.NoError(t, at.Err(), "it continues")
	rejected(t, b, key("1"))
	require.NoError(t, at.Commit(ctxT(t), []byte("y")))
	require.Equal(t, "y", string(replayed(t, b, key("1")).Value))
	require.LessOrEqual(t, a.client.Requests()["LeaseGrant"], before+1)
}

// Operations that the role does not allow are refused at once.
func TestOperationOfAnothersKey(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, nil)
	f := fixture{testkit.On(t, c)}
	require.NoError(t, c.AddUser(ctxT(t), "app", "secret", f.Root))
	require.NoError(t, c.EnableAuth(ctxT(t), "admin", "secret"))
	client := c.NewClient(t, &embedtest.ClientOptions{Username: "app", Password: "secret"})
	s, err := concurrency.NewSession(ctxT(t), client.Client, "test", &concurrency.SessionOptions{Prefix: f.Root})
	require.NoError(t, err)
	st, err := idempotency.NewStore(s, "store", nil)
	require.NoError(t, err)
	at, _, err := st.Begin(ctxT(t), key("1"), nil)
	require.NoError(t, err)
	at.Attach(nil, clientv3.OpPut("/others", "x"))
	require.ErrorIs(t, at.Commit(ctxT(t), []byte("x")), idempotency.ErrInvalid)
	require.NoError(t, at.Commit(ctxT(t), []byte("y")))
	require.NoError(t, s.Close(ctxT(t)))
}

// What a function has given to Attach is written with its value, and not with its failure.
func TestAttachOfAFailure(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, nil)
	remember := idempotency.OnError(func(error) idempotency.Action { return idempotency.Remember })
	for name, fail := range map[string]func() error{"error": func() error { return errors.New("x") }, "panic": func() error { panic("x") }} {
		func() {
			defer func() { _ = recover() }()
			_, _ = idempotency.Do(ctxT(t), a.Store, key(name), nil, func(_ context.Context, at *idempotency.Attempt) (int, error) {
				at.Attach(nil, clientv3.OpPut(f.Root+"effect", name))
				return 0, fail()
			}, remember, idempotency.OnPanic(idempotency.Remember))
		}()
		_, rec, err := a.Begin(ctxT(t), key(name), nil)
		require.NoError(t, err)
		require.True(t, rec.Failed)
		require.Empty(t, f.Keys("effect"), name)
	}
	at := begin(t, a, key("own"))
	at.Attach(nil, clientv3.OpPut(f.Root+"effect", ""))
	require.NoError(t, at.Fail(ctxT(t), "declined", nil))
	require.Len(t, f.Keys("effect"), 1, "a call of Fail counts")
}

// A Commit returns when its ctx ends, also while a recovery point is in flight, which ends
// then. What was done is recorded in the background.
func TestCommitBehindAStep(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	at := begin(t, a, key("1"))
	inj := a.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.FailWith, Times: -1, Match: func(_ string, msg any) bool {
		r, ok := msg.(*etcdserverpb.TxnRequest)
		return ok && len(r.Success) == 1 && strings.Contains(string(r.Success[0].GetRequestPut().GetKey()), "/record/")
	}})
	step := make(chan error, 1)
	go func() {
		_, err := idempotency.Step(at, "s", func(context.Context) (int, error) { return 1, nil })
		step <- err
	}()
	require.NoError(t, inj.WaitHit(ctxT(t)))
	short, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	committed := make(chan error, 1)
	go func() { committed <- at.Commit(short, []byte("x")) }()
	require.ErrorIs(t, got(t, committed, "Commit returns"), idempotency.ErrNotRecorded)
	require.Error(t, got(t, step, "the step returns"))
	inj.Remove()
	_, rec, err := b.Begin(ctxT(t), key("1"), "payload") // waits
	require.NoError(t, err)
	require.Equal(t, "x", string(rec.Value))
}

// An attempt's context has ended when another one begins, also if the answer to its end is
// late. The late answer does not report a fenced attempt.
func TestNoOverlapAfterAnEnd(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	for name, end := range map[string]func(*idempotency.Attempt) error{
		"Release": func(at *idempotency.Attempt) error { return at.Release(ctxT(t)) },
		"Abandon": func(at *idempotency.Attempt) error { return at.Abandon(ctxT(t)) },
	} {
		at := begin(t, a, key(name))
		a.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropResponse})
		again := a.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldRequest})
		done := make(chan error, 1)
		go func() { done <- end(at) }()
		next := begin(t, b, key(name)) // waits
		require.ErrorIs(t, at.Err(), idempotency.ErrSettled, name)
		require.Error(t, at.Context().Err(), name)
		require.NoError(t, again.WaitHit(ctxT(t)))
		again.Remove()
		require.NoError(t, again.Release())
		require.NoError(t, got(t, done, "it returns"), name)
		require.NoError(t, next.Release(ctxT(t)))
	}
}

// A Begin within its own attempt would wait for itself, and is refused.
func TestBegunWithinItself(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, nil)
	_, err := idempotency.Do(ctxT(t), a.Store, key("1"), nil, func(ctx context.Context, _ *idempotency.Attempt) (int, error) {
		_, err := idempotency.Do(ctx, a.Store, key("2"), nil, func(context.Context, *idempotency.Attempt) (int, error) { return 2, nil })
		require.NoError(t, err, "another one is another matter")
		same, err := idempotency.NewStore(a.sess, "store", nil)
		require.NoError(t, err)
		_, _, err = same.Begin(ctx, key("1"), nil, idempotency.Wait(0))
		require.ErrorIs(t, err, idempotency.ErrInvalid, "another Store of the same name is the same")
		other, err := idempotency.NewStore(a.sess, "another", nil)
		require.NoError(t, err)
		at, _, err := other.Begin(ctx, key("1"), nil)
		require.NoError(t, err, "another store is another matter")
		require.True(t, idempotency.Within(at.Context(), a.Store, key("1")), "it is within both")
		require.NoError(t, at.Release(ctx))
		require.False(t, idempotency.Within(at.Context(), other, key("1")), "it has ended")
		require.True(t, idempotency.Within(at.Context(), a.Store, key("1")), "the one around it has not")
		_, err = idempotency.Do(ctx, a.Store, key("1"), nil, func(context.Context, *idempotency.Attempt) (int, error) { return 3, nil })
		return 1, err
	})
	require.ErrorIs(t, err, idempotency.ErrInvalid)
	require.ErrorContains(t, err, "within its own attempt")
}

// A744: a request that is begun within its own attempt, by way of an attempt at another request or of another store, waited for
// itself until MaxExecution had passed, and was executed twice.
func TestBegunWithinItselfFarther(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, nil)
	other, err := idempotency.NewStore(a.sess, "another", nil)
	require.NoError(t, err)
	for name, between := range map[string]struct {
		store *idempotency.Store
		keys  []string
	}{
		"another key":   {a.Store, []string{"between"}},
		"another store": {other, []string{"own"}},
		"several":       {other, []string{"own", "between", "third"}},
	} {
		for _, policy := range []idempotency.LostPolicy{idempotency.TakeOver, idempotency.Refuse} {
			id := fmt.Sprint(name, policy)
			executed := 0
			var deeper func(ctx context.Context, keys []string) error
			deeper = func(ctx context.Context, keys []string) error {
				store, id := a.Store, id
				if len(keys) > 0 {
					store, id = between.store, id+keys[0]
					if keys[0] == "own" {
						id = id[:len(id)-len("own")]
					}
				}
				_, err := idempotency.Do(ctx, store, key(id), nil, func(ctx context.Context, _ *idempotency.Attempt) (int, error) {
					if len(keys) == 0 {
						executed++
						return 1, nil
					}
					return 1, deeper(context.WithoutCancel(ctx), keys[1:])
				}, idempotency.Wait(time.Minute))
				return err
			}
			begun := time.Now()
			_, err := idempotency.Do(ctxT(t), a.Store, key(id), nil, func(ctx context.Context, _ *idempotency.Attempt) (int, error) {
				return 1, deeper(ctx, between.keys)
			}, idempotency.OnLost(policy))
			require.ErrorIs(t, err, idempotency.ErrInvalid, id)
			require.ErrorContains(t, err, "within its own attempt", id)
			require.Zero(t, executed, id)
			require.Less(t, time.Since(begun), 10*time.Second, id)
		}
	}
}

// While etcd is near its quota replays continue, LikelyNew or not.
func TestFullAndLikelyNew(t *testing.T) {
	t.Parallel()
	f := own(t)
	a, b := f.instance(nil, nil), f.instance(nil, &idempotency.Options{NearQuota: 1e-9})
	require.NoError(t, begin(t, a, key("1")).Commit(ctxT(t), []byte("x")))
	at := begin(t, a, key("2"))
	require.Eventually(t, func() bool {
		at, _, err := b.Begin(ctxT(t), key("3"), "payload", idempotency.LikelyNew())
		if err == nil {
			require.NoError(t, at.Release(ctxT(t)))
		}
		return errors.Is(err, idempotency.ErrNearQuota)
	}, soon, 5*time.Millisecond)
	_, rec, err := b.Begin(ctxT(t), key("1"), "payload", idempotency.LikelyNew())
	require.NoError(t, err)
	require.Equal(t, "x", string(rec.Value))
	_, _, err = b.Begin(ctxT(t), key("2"), "payload", idempotency.LikelyNew(), idempotency.Wait(0))
	require.ErrorIs(t, err, idempotency.ErrInProgress)
	_, _, err = b.Begin(ctxT(t), key("2"), "another", idempotency.LikelyNew(), idempotency.Wait(0))
	require.ErrorIs(t, err, idempotency.ErrMismatch)
	require.NoError(t, at.Commit(ctxT(t), nil))
}

// Requests are refused before etcd's quota is reached, however fast one process fills it:
// every request that was begun has its outcome recorded.
func TestFilledInASecond(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, &embedtest.Options{QuotaBytes: 96 << 20})
	f := fixture{testkit.On(t, c)}
	a := f.instance(nil, nil)
	for n := range 100 {
		at, _, err := a.Begin(ctxT(t), key(fmt.Sprint(n)), "payload")
		if err != nil {
			require.ErrorIs(t, err, idempotency.ErrNearQuota)
			require.Greater(t, n, 10, "there was space")
			alarms, err := c.Client().AlarmList(ctxT(t))
			require.NoError(t, err)
			require.Empty(t, alarms.Alarms)
			return
		}
		require.NoError(t, at.Commit(ctxT(t), make([]byte, 2<<20)), n)
	}
	require.Fail(t, "never full")
}
