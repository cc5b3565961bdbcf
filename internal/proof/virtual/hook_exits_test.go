package virtual

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/observe"
)

// A481 in internal/proof/tested-failures.md: a hook exits the goroutine in which a session acquires a share of a rate. The next
// one serves the calls.
func TestHookExitsTheRequestOfAShare(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		var exited atomic.Bool
		d.open(concurrency.SessionOptions{Hooks: []observe.Hooks{{Start: func(ctx context.Context, c observe.Call) (context.Context, func(observe.Outcome)) {
			if c.Kind == observe.Rate && !exited.Swap(true) {
				runtime.Goexit()
			}
			return ctx, nil
		}}}})
		l := d.rate(1, 1)
		require.ErrorContains(t, l.Wait(within(t, time.Minute)), "runtime.Goexit")
		require.True(t, exited.Load())
		require.NoError(t, l.Wait(within(t, time.Minute)))
	})
}
