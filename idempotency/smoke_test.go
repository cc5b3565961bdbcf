package idempotency_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/idempotency"
)

type receipt struct {
	ID    string
	Cents int
}

func TestDo(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	calls := 0
	pay := func(context.Context, *idempotency.Attempt) (receipt, error) {
		calls++
		return receipt{"r1", 100}, nil
	}
	res, err := idempotency.Do(ctxT(t), a.Store, key("1"), "payload", pay)
	require.NoError(t, err)
	require.Equal(t, receipt{"r1", 100}, res.Value)
	require.False(t, res.Replayed)
	require.Equal(t, 1, res.Attempt)
	require.Empty(t, f.working())
	for _, in := range []instance{a, b, b} {
		again, err := idempotency.Do(ctxT(t), in.Store, key("1"), "payload", pay)
		require.NoError(t, err)
		require.Equal(t, res.Value, again.Value)
		require.True(t, again.Replayed)
		require.Equal(t, res.Token, again.Token)
	}
	require.Equal(t, 1, calls)
	require.EqualValues(t, 1, a.Stats().Cached)
	require.EqualValues(t, 1, b.Stats().Cached)
	require.EqualValues(t, 1, b.Stats().Read)

	_, err = idempotency.Do(ctxT(t), b.Store, key("1"), "another", pay)
	require.ErrorIs(t, err, idempotency.ErrMismatch)
	require.Equal(t, 1, calls)
}

// The same in all four forms: a function that returns an error, one whose error is
// remembered, a panic, and a result.
func TestErrorsOfTheFunction(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	broken := errors.New("broken")
	fails := func(context.Context, *idempotency.Attempt) (int, error) { return 0, broken }
	works := func(context.Context, *idempotency.Attempt) (int, error) { return 1, nil }

	_, err := idempotency.Do(ctxT(t), a.Store, key("1"), nil, fails)
	require.ErrorIs(t, err, broken)
	require.Empty(t, f.working())
	res, err := idempotency.Do(ctxT(t), b.Store, key("1"), nil, works)
	require.NoError(t, err)
	require.False(t, res.Replayed)

	remember := idempotency.OnError(func(err error) idempotency.Action {
		require.ErrorIs(t, err, broken)
		return idempotency.Remember
	})
	_, err = idempotency.Do(ctxT(t), a.Store, key("2"), nil, fails, remember)
	require.ErrorIs(t, err, broken)
	_, err = idempotency.Do(ctxT(t), b.Store, key("2"), nil, works)
	require.ErrorIs(t, err, idempotency.ErrFailed)
	var failed *idempotency.FailedError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, "broken", failed.Outcome.Failure)
}

// One Txn with the caller's own keys.
func TestCommitWith(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	outbox := f.Root + "outbox"
	empty := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(outbox), "=", 0)}
	for i, in := range []instance{a, b} {
		at := begin(t, in, key(string(rune('1'+i))))
		at.Attach(empty, clientv3.OpPut(outbox, "x"))
		err := at.Commit(ctxT(t), []byte("done"))
		if i == 0 {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, idempotency.ErrConflict)
		require.NoError(t, at.Err())
		rejected(t, a, at.Key())
		require.NoError(t, at.Commit(ctxT(t), []byte("otherwise")))
		require.Equal(t, "otherwise", string(replayed(t, a, at.Key()).Value))
	}
	resp, err := f.Client().Get(ctxT(t), outbox)
	require.NoError(t, err)
	require.EqualValues(t, 1, resp.Kvs[0].Version)
}

// I05: many at once, in four processes: one does it, all get what it got.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	f := shared(t)
	var all []instance
	for range 4 {
		all = append(all, f.instance(nil, nil))
	}
	var calls, replays atomic.Int64
	var wg sync.WaitGroup
	for n := range 100 {
		wg.Go(func() {
			res, err := idempotency.Do(ctxT(t), all[n%4].Store, key("1"), "payload", func(context.Context, *idempotency.Attempt) (int64, error) {
				time.Sleep(50 * time.Millisecond)
				return calls.Add(1), nil
			})
			if err != nil || res.Value != 1 {
				t.Error(res, err)
			}
			if res.Replayed {
				replays.Add(1)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, calls.Load())
	require.EqualValues(t, 99, replays.Load())
}
