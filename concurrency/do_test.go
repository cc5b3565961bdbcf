package concurrency_test

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// T14: a function that panics or exits its goroutine gives its permit back.
func TestDoSurvivesPanicAndGoexit(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	sm := sem(t, s, "x", 1)
	require.PanicsWithValue(t, "boom", func() {
		_ = sm.Do(ctx, func(context.Context, *concurrency.Permit) error { panic("boom") })
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = sm.Do(ctx, func(context.Context, *concurrency.Permit) error { runtime.Goexit(); return nil })
	}()
	closed(t, done, "Goexit")
	p, err := sm.TryAcquire(ctx)
	require.NoError(t, err)
	require.NoError(t, p.Release(ctx))
}

func TestDoBoundsTheFunction(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, _ := f.Session(nil)
	sm := sem(t, s, "x", 1)
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(ctxT(t), key{}, "value"))
	mine := errors.New("mine")
	err := sm.Do(ctx, func(ctx context.Context, p *concurrency.Permit) error {
		require.Equal(t, "value", ctx.Value(key{}))
		require.Equal(t, "value", p.Context().Value(key{}))
		cancel()
		closed(t, ctx.Done(), "the caller's ctx bounds the function")
		require.NoError(t, p.Err(), "but not the permit")
		return mine
	})
	require.Equal(t, mine, err, "the release in the background is no news")
	f.NoKeys("queue/")

	// A lost permit ends the function's ctx with its cause and is reported even
	// if the function succeeds.
	err = sm.Do(ctxT(t), func(ctx context.Context, p *concurrency.Permit) error {
		require.NoError(t, sm.EvictToken(ctxT(t), p.Token(), "for a test"))
		closed(t, ctx.Done(), "eviction ends the function's ctx")
		require.ErrorIs(t, context.Cause(ctx), concurrency.ErrEvicted)
		return nil
	})
	require.ErrorIs(t, err, concurrency.ErrLost)
	require.ErrorIs(t, err, concurrency.ErrEvicted)
	require.ErrorContains(t, err, "for a test")
}
