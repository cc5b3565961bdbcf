package idempotency_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
)

// TestDoUnderALostPermit: the permit of work is lost, and the work is the function of Do: the function's context ends, and
// that of its step, with the permit's loss as their cause (A326 in internal/proof/tested-failures.md). They ran on beside
// the work that had the permit next. The attempt keeps its claim: what the function returns is recorded.
func TestDoUnderALostPermit(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	sem, err := concurrency.NewSemaphore(a.sess, "workers", 1, nil)
	require.NoError(t, err)
	lost := func(err error) {
		t.Helper()
		var of *concurrency.LostError
		require.ErrorAs(t, err, &of)
		require.ErrorIs(t, of, concurrency.ErrEvicted)
	}
	err = sem.Do(ctxT(t), func(ctx context.Context, p *concurrency.Permit) error {
		res, err := idempotency.Do(ctx, a.Store, key("1"), "payload", func(ctx context.Context, at *idempotency.Attempt) (int, error) {
			require.NoError(t, at.Err())
			_, err := idempotency.Step(at, "work", func(ctx context.Context) (int, error) {
				require.NoError(t, sem.EvictToken(ctxT(t), p.Token(), "test"))
				closed(t, ctx.Done(), "the step's context ends")
				return 0, context.Cause(ctx)
			})
			lost(err)
			lost(context.Cause(ctx))
			lost(at.Err())
			lost(at.SetNote("late"))
			rejected(t, b, key("1"))
			return 7, nil
		})
		require.NoError(t, err)
		require.Equal(t, 7, res.Value)
		return nil
	})
	require.ErrorIs(t, err, concurrency.ErrEvicted)
	require.Equal(t, "7", string(replayed(t, b, key("1")).Value))
}

// TestDoWhoseCtxEndsByALoss: a ctx that ends with the loss of a permit as its cause, which it does not have in it, ends the
// attempt as well: so does that of a request that was admitted under a share and has got its permit since.
func TestDoWhoseCtxEndsByALoss(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	ctx, end := context.WithCancelCause(ctxT(t))
	defer end(nil)
	lost := &concurrency.LostError{Name: "tenants", Token: 7, Cause: concurrency.ErrEvicted}
	_, err := idempotency.Do(ctx, in.Store, key("1"), "payload", func(work context.Context, _ *idempotency.Attempt) (int, error) {
		end(lost)
		closed(t, work.Done(), "the attempt's context ends")
		return 0, context.Cause(work)
	})
	require.ErrorIs(t, err, concurrency.ErrEvicted)
}

// TestErrorUnderALostPermit: an error of a function whose permit was lost is joined with that, and leaves the attempt as lost,
// as at each end of its context: the next call takes over at once.
func TestErrorUnderALostPermit(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	sem, err := concurrency.NewSemaphore(a.sess, "workers", 1, nil)
	require.NoError(t, err)
	err = sem.Do(ctxT(t), func(ctx context.Context, p *concurrency.Permit) error {
		_, err := idempotency.Do(ctx, a.Store, key("1"), "payload", func(ctx context.Context, _ *idempotency.Attempt) (int, error) {
			require.NoError(t, sem.EvictToken(ctxT(t), p.Token(), "test"))
			closed(t, ctx.Done(), "the function's context ends")
			return 0, ctx.Err()
		})
		return err
	})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, concurrency.ErrEvicted)
	at := begin(t, b, key("1"))
	require.Equal(t, 2, at.Attempt())
	require.NoError(t, at.Release(ctxT(t)))
}
