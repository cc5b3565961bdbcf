package concurrency_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/share"
)

// seenFull asserts that a call was refused because its queue is full, as etcd has shown it: a middleware answers 429.
func seenFull(t *testing.T, err error, used, waiting int) {
	t.Helper()
	require.NotErrorIs(t, err, share.ErrUnseen)
	full, ok := errors.AsType[*concurrency.FullError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, []int{used, waiting}, []int{full.Used, full.Waiting})
}

// overtakes has another request join the queue before the next request of a client that comes under a condition.
func overtakes(t *testing.T, ctx context.Context, c *embedtest.Client, by *concurrency.Semaphore) *embedtest.Injection {
	return c.Inject(embedtest.Fault{Method: "Txn", Match: txn(true), Times: 1, Do: embedtest.Pass, Before: func() { _ = ask(t, ctx, by) }})
}

// TestShortWaitInACrowd: a call with MaxWaiters looks first at what its session follows, for up to 20 ms. If its Wait ends
// there, the queue was seen to be full (A471 in internal/proof/tested-failures.md: such calls were answered as if etcd had
// not shown it).
func TestShortWaitInACrowd(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	s, c := f.Session(idle())
	other, _ := f.Session(idle())
	sm, there := sem(t, s, "x", 1), sem(t, other, "x", 1)
	acquire(t, ctx, there)
	_ = ask(t, ctx, sm) // so that the session follows the queue
	lasting, cancel := context.WithCancel(ctx)
	defer cancel()
	over := overtakes(t, ctx, c, there)
	joined := ask2(lasting, sm, concurrency.MaxWaiters(50))
	require.NoError(t, over.WaitHit(ctx))
	require.Eventually(t, func() bool { st, err := sm.Status(ctx); return err == nil && len(st.Waiters) == 3 }, soon, tick)
	f.sees(ctx, sm)
	seen := func() bool { // unless a busy machine has etcd answer nothing meanwhile
		_, err := sm.Acquire(ctx, concurrency.MaxWaiters(1), concurrency.Wait(15*time.Millisecond))
		if errors.Is(err, concurrency.ErrUnavailable) {
			return false
		}
		seenFull(t, err, 1, 3)
		return true
	}
	require.Eventually(t, seen, soon, tick)
	cancel()
	<-joined
}

// TestWaitEndsAfterACount: the Txn of a request with MaxWaiters has counted the queue as too full, and the Wait ends in
// the read after it; or a look has counted it, another request comes before this one, and the Wait ends in the second
// Txn (A472 in internal/proof/tested-failures.md).
func TestWaitEndsAfterACount(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		most, waiting int
		then          embedtest.Fault
	}{
		"in the read after its Txn": {1, 1, embedtest.Fault{Method: "Range", Match: lists, Skip: 1, Do: embedtest.HoldRequest}},
		"in its second Txn":         {1, 0, embedtest.Fault{Method: "Txn", Match: txn(true), Do: embedtest.HoldRequest}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, ctx := shared(t), ctxT(t)
			s, client := f.Session(idle())
			other, _ := f.Session(idle())
			sm, there := sem(t, s, "x", 1), sem(t, other, "x", 1)
			require.NoError(t, acquire(t, ctx, sm).Release(ctx)) // knows the limit
			acquire(t, ctx, there)
			overtakes(t, ctx, client, there)
			held := client.Inject(c.then)
			_, err := sm.Acquire(ctx, concurrency.MaxWaiters(c.most), concurrency.Wait(400*time.Millisecond))
			require.Positive(t, held.Hits())
			seenFull(t, err, 1, c.waiting)
			require.NoError(t, held.Release())
		})
	}
}
