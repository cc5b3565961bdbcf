package concurrency_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// A604: MaxTotalWaiters counts no request of this session that has ended and is still being removed.
func TestMaxTotalWaitersBesideEndedRequests(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, ctx context.Context, c *embedtest.Client, a *concurrency.Semaphore, held *concurrency.Permit){
		"a wait that was given up": func(t *testing.T, ctx context.Context, c *embedtest.Client, a *concurrency.Semaphore, _ *concurrency.Permit) {
			removal := c.Inject(embedtest.Fault{Method: "Txn", Match: txn(false), Times: -1, Do: embedtest.HoldRequest})
			waits, giveUp := context.WithCancel(ctx)
			call := ask(t, waits, a)
			giveUp()
			require.ErrorIs(t, got(t, call, "it has ended").err, context.Canceled)
			require.NoError(t, removal.WaitHit(ctx))
		},
		"a release whose ctx has ended": func(t *testing.T, ctx context.Context, c *embedtest.Client, a *concurrency.Semaphore, held *concurrency.Permit) {
			ask(t, ctx, a)
			removal := c.Inject(embedtest.Fault{Method: "Txn", Match: txn(false), Times: -1, Do: embedtest.HoldRequest})
			ended, cancel := context.WithCancel(ctx)
			cancel()
			require.ErrorIs(t, held.Release(ended), concurrency.ErrUnconfirmed)
			require.NoError(t, removal.WaitHit(ctx))
		},
		"a request in doubt": func(t *testing.T, ctx context.Context, c *embedtest.Client, a *concurrency.Semaphore, _ *concurrency.Permit) {
			answer := c.Inject(embedtest.Fault{Method: "Txn", Match: txn(true), Do: embedtest.HoldResponse})
			waits, giveUp := context.WithCancel(ctx)
			call := ask(t, waits, a)
			require.NoError(t, answer.WaitHit(ctx))
			giveUp()
			require.ErrorIs(t, got(t, call, "it has ended").err, context.Canceled)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, ctx := shared(t), ctxT(t)
			s, c := f.Session(idle())
			lim, err := concurrency.NewKeyedLimiter(s, "llm", 5, &concurrency.KeyedLimiterOptions{Total: 1, MaxTotalWaiters: 1})
			require.NoError(t, err)
			a := lim.Key("a")
			require.NoError(t, acquire(t, ctx, a).Release(ctx), "it knows the limits")
			held := acquire(t, ctx, a)
			end(t, ctx, c, a, held)
			_, err = a.Acquire(ctx, concurrency.Wait(150*time.Millisecond))
			require.ErrorContains(t, err, "Wait(150ms) has passed", "it waits")
		})
	}
}

// A653: a refusal by MaxTotalWaiters reads the queue of the total only if the requests of this session that are being removed could
// change the answer: what storms of refusals leave behind does not.
func TestMaxTotalWaitersRefusesByCounts(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	limiter := func(s *concurrency.Session, most int) *concurrency.KeyedLimiter {
		lim, err := concurrency.NewKeyedLimiter(s, "llm", 9, &concurrency.KeyedLimiterOptions{Total: 1, MaxTotalWaiters: most})
		require.NoError(t, err)
		return lim
	}
	s, c := f.Session(idle())
	a := limiter(s, 1).Key("a")
	require.NoError(t, acquire(t, ctx, a).Release(ctx), "it knows the limits")
	other, _ := f.Session(idle())
	b := limiter(other, 0).Key("b")
	acquire(t, ctx, b)
	for range 7 {
		ask(t, ctx, b)
	}
	removal := c.Inject(embedtest.Fault{Method: "Txn", Match: txn(false), Times: -1, Do: embedtest.HoldRequest})
	refuse := func() {
		_, err := a.Acquire(ctx)
		require.ErrorIs(t, err, concurrency.ErrFull)
	}
	refuse()
	require.NoError(t, removal.WaitHit(ctx))
	var lists atomic.Int64
	c.Inject(embedtest.Fault{Method: "Range", Times: -1, Match: func(_ string, msg any) bool {
		if r, ok := msg.(*etcdserverpb.RangeRequest); ok && len(r.RangeEnd) > 0 && !r.CountOnly {
			lists.Add(1)
		}
		return false
	}})
	refuse()
	require.Zero(t, lists.Load(), "one request is being removed")
}
