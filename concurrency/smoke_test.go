package concurrency_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

func contains(s, part string) bool { return strings.Contains(s, part) }

func TestSmoke(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	sm := sem(t, s, "render", 2)
	a, err := sm.Acquire(ctx)
	require.NoError(t, err)
	b, err := sm.TryAcquire(ctx)
	require.NoError(t, err)
	_, err = sm.TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull)
	ch := make(chan *concurrency.Permit, 1)
	go func() {
		p, err := sm.Acquire(ctx)
		if err == nil {
			ch <- p
		}
	}()
	st, err := sm.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, 2, st.Used)
	require.NoError(t, a.Release(ctx))
	c := got(t, ch, "third")
	require.NoError(t, b.Release(ctx))
	require.NoError(t, c.Release(ctx))
	require.NoError(t, c.Release(ctx))
	require.ErrorIs(t, c.Err(), concurrency.ErrReleased)
	require.False(t, errors.Is(c.Err(), concurrency.ErrLost))
	require.NoError(t, s.Close(ctx))
	f.NoKeys("queue/")
}

func TestSmokeMany(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	var in, peak atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		s, _ := f.Session(nil)
		sm := sem(t, s, "x", 3)
		for range 8 {
			wg.Go(func() {
				for range 8 {
					err := sm.Do(ctx, func(context.Context, *concurrency.Permit) error {
						n := in.Add(1)
						for {
							p := peak.Load()
							if n <= p || peak.CompareAndSwap(p, n) {
								break
							}
						}
						in.Add(-1)
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	require.LessOrEqual(t, peak.Load(), int64(3))
	t.Log("peak", peak.Load())
}
