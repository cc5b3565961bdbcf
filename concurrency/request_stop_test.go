package concurrency_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// stoppable is a queue whose holders can be asked to stop.
type stoppable interface {
	RequestStop(ctx context.Context, token int64, reason string) error
}

// A holder is asked, with the process and its reason, and keeps a valid permit until it releases it. No
// other holder is asked, no waiter, and no token that is gone.
func TestRequestStop(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	admin, _ := f.Session(&concurrency.SessionOptions{Owner: "admin"})
	keyed := func(s *concurrency.Session, total int) *concurrency.KeyedLimiter {
		l, err := concurrency.NewKeyedLimiter(s, "api", 1, &concurrency.KeyedLimiterOptions{Total: total})
		require.NoError(t, err)
		return l
	}
	flat := func(s *concurrency.Session) *concurrency.KeyedLimiter {
		l, err := concurrency.NewKeyedLimiter(s, "flat", 1, nil)
		require.NoError(t, err)
		return l
	}
	type lock = func(context.Context, ...concurrency.AcquireOption) (*concurrency.Permit, error)
	for name, c := range map[string]struct {
		asker stoppable
		name  string
		lock  lock
	}{
		"semaphore":    {sem(t, admin, "x", 1), "x", sem(t, s, "x", 1).Acquire},
		"mutex":        {mutex(t, admin, "x"), "x", mutex(t, s, "x").Lock},
		"election":     {election(t, admin, "x"), "x", election(t, s, "x").Campaign},
		"key":          {flat(admin).Key("a"), "flat/a", flat(s).Key("a").Acquire},
		"key of total": {keyed(admin, 5).Key("a"), "api/a", keyed(s, 5).Key("a").Acquire},
		"total":        {keyed(admin, 5).Total(), "api/b", keyed(s, 5).Key("b").Acquire},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := ctxT(t)
			p, err := c.lock(ctx)
			require.NoError(t, err)
			require.NoError(t, p.StopRequested().Err())
			require.NoError(t, c.asker.RequestStop(ctx, p.Token(), "deploy"))
			closed(t, p.StopRequested().Done(), "it is asked")
			var asked *concurrency.StepDownError
			require.ErrorAs(t, context.Cause(p.StopRequested()), &asked)
			require.Equal(t, concurrency.StepDownError{Name: c.name, Token: p.Token(), Reason: "by admin: deploy"}, *asked)
			require.NoError(t, p.Err())
			require.NoError(t, c.asker.RequestStop(ctx, p.Token(), "again"))
			require.NoError(t, p.Release(ctx))
			require.ErrorIs(t, c.asker.RequestStop(ctx, p.Token(), ""), concurrency.ErrNotHeld)
			require.ErrorIs(t, c.asker.RequestStop(ctx, p.Token(), "\xff"), concurrency.ErrInvalid)
			next, err := c.lock(ctx)
			require.NoError(t, err)
			require.NoError(t, next.StopRequested().Err(), "the next one was not asked")
			require.NoError(t, next.Release(ctx))
		})
	}
	t.Run("others", func(t *testing.T) {
		t.Parallel()
		two, by := sem(t, s, "two", 2), sem(t, admin, "two", 2)
		a, b := acquire(t, ctx, two), acquire(t, ctx, two)
		third := ask(t, ctx, two)
		var waiter int64
		for st, err := range by.Watch(ctx) {
			require.NoError(t, err)
			if len(st.Waiters) == 1 {
				waiter = st.Waiters[0].Token
				break
			}
		}
		require.ErrorIs(t, by.RequestStop(ctx, waiter, ""), concurrency.ErrNotHeld)
		require.ErrorIs(t, keyed(admin, 5).Key("other").RequestStop(ctx, a.Token(), ""), concurrency.ErrNotHeld)
		require.NoError(t, by.RequestStop(ctx, a.Token(), ""))
		closed(t, a.StopRequested().Done(), "it is asked")
		require.NoError(t, b.StopRequested().Err())
		require.NoError(t, a.Release(ctx))
		c := granted(t, third, "a has released")
		require.NoError(t, c.StopRequested().Err())
		require.NoError(t, b.Release(ctx))
		require.NoError(t, c.Release(ctx))
	})
}

// A permit that would be kept for the next call, or passed on to it, is released once its holder was
// asked to stop: the process that waits behind it is served. A key that is idle is removed at once.
func TestRequestStopOfKeptPermits(t *testing.T) {
	t.Parallel()
	f := shared(t)
	for name, opts := range map[string]concurrency.SemaphoreOptions{
		"Keep":     {Keep: time.Hour},
		"Handover": {Handover: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := ctxT(t)
			s, _ := f.Session(idle())
			admin, _ := f.Session(idle())
			sm, err := concurrency.NewSemaphore(s, name, 1, &opts)
			require.NoError(t, err)
			p := acquire(t, ctx, sm)
			local := ask(t, ctx, sm) // would have the permit next
			by := sem(t, admin, name, 1)
			st, err := by.Status(ctx)
			require.NoError(t, err)
			require.NoError(t, by.RequestStop(ctx, st.Holders[0].Token, "drain"))
			closed(t, p.StopRequested().Done(), "it is asked")
			require.NoError(t, p.Release(ctx))
			next := granted(t, local, "it has a request of its own, or is handed a later key")
			require.Greater(t, next.Token(), st.Holders[0].Token)
			require.NoError(t, next.StopRequested().Err())
			require.NoError(t, next.Release(ctx))
		})
	}
	t.Run("idle", func(t *testing.T) {
		t.Parallel()
		ctx := ctxT(t)
		s, _ := f.Session(idle())
		admin, _ := f.Session(idle())
		sm, err := concurrency.NewSemaphore(s, "idle", 1, &concurrency.SemaphoreOptions{Keep: time.Hour})
		require.NoError(t, err)
		by := sem(t, admin, "idle", 1)
		var st concurrency.Status
		require.Eventually(t, func() bool { // the queue is quiet, as far as the session knows
			assertNoError(t, acquire(t, ctx, sm).Release(ctx))
			st, err = by.Status(ctx)
			return assertNoError(t, err) && len(st.Holders) == 1
		}, soon, tick, "it is kept")
		require.NoError(t, by.RequestStop(ctx, st.Holders[0].Token, "drain"))
		require.NoError(t, acquire(t, ctx, by).Release(ctx))
	})
}
