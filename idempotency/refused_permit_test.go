package idempotency_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
)

// A622: a permit that is refused within a request is any other error, so with Refuse the outcome is unknown. Do returned
// the error of the limit alone, without ErrUnknown and the reference for Resolve; the next delivery got them.
func TestRefusedPermitWithinARequest(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse})
	sem, err := concurrency.NewSemaphore(in.sess, "charge", 1, nil)
	require.NoError(t, err)
	taken, err := sem.Acquire(ctxT(t))
	require.NoError(t, err)
	charges := 0
	charge := func(ctx context.Context) error {
		return sem.Do(ctx, func(context.Context, *concurrency.Permit) error { charges++; return nil }, concurrency.Wait(0))
	}
	do := func(id string, says func(error) error) error {
		_, err := idempotency.Do(ctxT(t), in.Store, key(id), nil, func(ctx context.Context, _ *idempotency.Attempt) (int, error) {
			return 1, says(charge(ctx))
		})
		return err
	}
	silent := func(err error) error { return err }
	undone := func(err error) error {
		if errors.Is(err, concurrency.ErrFull) {
			return idempotency.NothingDone(err)
		}
		return err
	}
	refused := func(err error, id string) {
		t.Helper()
		require.ErrorIs(t, err, concurrency.ErrFull)
		var unknown *idempotency.UnknownError
		require.ErrorAs(t, err, &unknown)
		require.Equal(t, in.Ref(key(id)), unknown.Ref)
		require.NotContains(t, err.Error(), string(unknown.Ref), "the text is the function's: a handler may send it to a client")
	}
	refused(do("silent", silent), "silent")
	a := begin(t, in, key("run"))
	refused(a.Run(ctxT(t), func(ctx context.Context) ([]byte, error) { return nil, charge(ctx) }), "run")

	err = do("said", undone)
	require.ErrorIs(t, err, concurrency.ErrFull)
	require.NotErrorIs(t, err, idempotency.ErrUnknown)
	require.NoError(t, taken.Release(ctxT(t)))
	require.ErrorIs(t, do("silent", silent), idempotency.ErrUnknown)
	require.Zero(t, charges)
	require.NoError(t, do("said", undone))
	require.Equal(t, 1, charges)
}

// A622: only the error of an attempt after which the request is refused is an ErrUnknown.
func TestOnlyARefusedRequestIsUnknown(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, &idempotency.Options{SingleTenant: true})
	no := errors.New("no")
	do := func(id string, p idempotency.LostPolicy, fn func(a *idempotency.Attempt) error) error {
		_, err := idempotency.Do(ctxT(t), in.Store, key(id), nil, func(_ context.Context, a *idempotency.Attempt) (int, error) {
			return 0, fn(a)
		}, idempotency.OnLost(p))
		require.Error(t, err)
		return err
	}
	fails := func(*idempotency.Attempt) error { return no }
	require.Same(t, no, do("take over", idempotency.TakeOver, fails))
	require.Same(t, no, do("abandoned", idempotency.TakeOver, func(a *idempotency.Attempt) error {
		require.NoError(t, a.Abandon(ctxT(t)))
		return no
	}))
	require.Same(t, no, do("done", idempotency.Refuse, func(a *idempotency.Attempt) error {
		require.NoError(t, a.Commit(ctxT(t), []byte("1")))
		return no
	}))
	require.NotErrorIs(t, do("failed", idempotency.Refuse, func(*idempotency.Attempt) error { return idempotency.Permanent(no) }), idempotency.ErrUnknown)
	err := do("deleted", idempotency.Refuse, func(*idempotency.Attempt) error {
		_, err := f.Client().Delete(ctxT(t), f.working()[0])
		require.NoError(t, err)
		return no
	})
	require.NotErrorIs(t, err, idempotency.ErrUnknown, "its record is gone, so the next call executes it")
	require.NoError(t, begin(t, in, key("deleted")).Release(ctxT(t)))
	err = do("away", idempotency.Refuse, func(*idempotency.Attempt) error {
		in.client.Cut()
		return no
	})
	require.ErrorIs(t, err, idempotency.ErrNotRecorded)
	require.ErrorIs(t, err, idempotency.ErrUnknown, "nothing but an operator ends it")
	in.client.Heal()
}
