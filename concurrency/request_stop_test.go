package concurrency_test

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
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
		ctx := ctxT(t) // it may begin long after the test around it
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
		require.ErrorIs(t, by.RequestStop(ctx, waiter+1, ""), concurrency.ErrNotHeld)
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
		require.Eventually(t, func() bool { // the queue is quiet, as far as the session knows
			assertNoError(t, acquire(t, ctx, sm).Release(ctx))
			st, err := by.Status(ctx)
			if !assertNoError(t, err) || len(st.Holders) != 1 {
				return false
			}
			err = by.RequestStop(ctx, st.Holders[0].Token, "drain")
			return !errors.Is(err, concurrency.ErrNotHeld) && assertNoError(t, err) // or it was removed in the meantime
		}, soon, tick, "it is kept")
		require.NoError(t, acquire(t, ctx, by).Release(ctx))
	})
}

// A request that waits is withdrawn by its own process: its call ends as after Evict, nothing of it is
// left in etcd, and the holder before it and the waiter behind it are not concerned.
func TestRequestStopOfWaiters(t *testing.T) {
	t.Parallel()
	type lock = func(context.Context, ...concurrency.AcquireOption) (*concurrency.Permit, error)
	type queue interface {
		stoppable
		Status(context.Context, ...concurrency.StatusOption) (concurrency.Status, error)
	}
	keyed := func(total int) func(testing.TB, *concurrency.Session) *concurrency.KeyedLimiter {
		return func(t testing.TB, s *concurrency.Session) *concurrency.KeyedLimiter {
			l, err := concurrency.NewKeyedLimiter(s, "api", 1, &concurrency.KeyedLimiterOptions{Total: total})
			require.NoError(t, err)
			return l
		}
	}
	at := func(total int, key string) func(testing.TB, *concurrency.Session) (queue, lock) {
		return func(t testing.TB, s *concurrency.Session) (queue, lock) {
			k := keyed(total)(t, s).Key(key)
			return k, k.Acquire
		}
	}
	for name, c := range map[string]struct {
		first, open func(testing.TB, *concurrency.Session) (queue, lock) // open asks behind first, or behind itself
		name        string
	}{
		"semaphore": {nil, func(t testing.TB, s *concurrency.Session) (queue, lock) { q := sem(t, s, "x", 1); return q, q.Acquire }, "x"},
		"mutex":     {nil, func(t testing.TB, s *concurrency.Session) (queue, lock) { q := mutex(t, s, "x"); return q, q.Lock }, "x"},
		"election": {nil, func(t testing.TB, s *concurrency.Session) (queue, lock) {
			q := election(t, s, "x")
			return q, q.Campaign
		}, "x"},
		"key":               {nil, at(0, "a"), "api/a"},
		"key of total":      {nil, at(5, "a"), "api/a"},
		"key, in the total": {at(1, "b"), at(1, "a"), "api/a"},
		"total, by its waiters": {at(1, "b"), func(t testing.TB, s *concurrency.Session) (queue, lock) {
			l := keyed(1)(t, s)
			return l.Total(), l.Key(rand.Text()).Acquire
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, ctx := shared(t), ctxT(t)
			if c.first == nil {
				c.first = c.open
			}
			begin := func(open func(testing.TB, *concurrency.Session) (queue, lock), waiters int, q queue) <-chan answer {
				s, _ := f.Session(idle())
				_, l := open(t, s)
				ch := make(chan answer, 1)
				go func() {
					p, err := l(ctx)
					ch <- answer{p, err}
				}()
				require.Eventually(t, func() bool {
					st, err := q.Status(ctx)
					return len(ch) > 0 || err == nil && len(st.Waiters) == waiters
				}, soon, tick, "it waits")
				return ch
			}
			admin, _ := f.Session(&concurrency.SessionOptions{Owner: "admin"})
			q, _ := c.open(t, admin)
			holder := granted(t, begin(c.first, 1<<30, q), "the first")
			asked := begin(c.open, 1, q)
			behind := begin(c.open, 2, q)
			st, err := q.Status(ctx)
			require.NoError(t, err)
			token := st.Waiters[0].Token
			require.NoError(t, q.RequestStop(ctx, token, "deploy"))
			a := got(t, asked, "it waits no longer")
			var lost *concurrency.LostError
			require.ErrorAs(t, a.err, &lost)
			require.ErrorIs(t, a.err, concurrency.ErrEvicted)
			if c.name != "" {
				require.Equal(t, c.name, lost.Name)
			}
			require.Equal(t, "by admin: deploy", lost.Reason)
			require.Eventually(t, func() bool { st, err = q.Status(ctx); return err == nil && len(st.Waiters) == 1 }, soon, tick, "its key is removed")
			require.ErrorIs(t, q.RequestStop(ctx, token, "again"), concurrency.ErrNotHeld)
			require.NoError(t, holder.StopRequested().Err())
			require.NoError(t, holder.Release(ctx))
			next := granted(t, behind, "the one behind it")
			require.NoError(t, next.StopRequested().Err())
			require.NoError(t, next.Release(ctx))
		})
	}
}

// A request that sleeps far behind is withdrawn as well.
func TestRequestStopOfAFarWaiter(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	s, _ := f.Session(idle())
	by := sem(t, s, "x", 1)
	holder := acquire(t, ctx, by)
	line := f.line(blind, 1, 4)
	require.True(t, line[3].far)
	st, err := by.Status(ctx)
	require.NoError(t, err)
	require.NoError(t, by.RequestStop(ctx, st.Waiters[3].Token, ""))
	require.ErrorIs(t, got(t, line[3].ch, "it waits no longer").err, concurrency.ErrEvicted)
	f.queued(4)
	require.NoError(t, holder.Release(ctx))
	require.NoError(t, granted(t, line[0].ch, "the next").Release(ctx))
}

// A request that is admitted while it is asked to stop either never holds, or is asked as a holder: here its
// process learns of both at the same time.
func TestRequestStopOfAWaiterThatIsAdmitted(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	s, _ := f.Session(idle())
	by := sem(t, s, "x", 1)
	for range 8 {
		holder := acquire(t, ctx, by)
		other, client := f.Session(idle())
		asked := ask(t, ctx, sem(t, other, "x", 1))
		st, err := by.Status(ctx)
		require.NoError(t, err)
		client.Cut()
		require.NoError(t, by.RequestStop(ctx, st.Waiters[0].Token, "deploy"))
		require.NoError(t, holder.Release(ctx))
		client.Heal()
		a := got(t, asked, "its process hears of it")
		if a.err != nil {
			require.ErrorIs(t, a.err, concurrency.ErrEvicted)
			continue
		}
		closed(t, a.p.StopRequested().Done(), "it is asked as a holder")
		require.NoError(t, a.p.Err(), "its permit was not taken")
		require.NoError(t, a.p.Release(ctx))
	}
}

// A request to stop arrives before etcd's answer that grants the permit (A301 in internal/proof/tested-failures.md): the
// permit is not kept either, nor passed on, and what would have it next is not granted it.
func TestRequestStopBeforeTheGrant(t *testing.T) {
	t.Parallel()
	f := shared(t)
	admin, _ := f.Session(idle())
	late := func(t *testing.T, client *embedtest.Client, name string, holders int) (release func() (token int64)) {
		t.Helper()
		ctx, by := ctxT(t), sem(t, admin, name, 2)
		held := client.Inject(embedtest.Fault{Method: "Txn", Match: txn(true), Do: embedtest.HoldResponse})
		return func() (token int64) {
			require.NoError(t, held.WaitHit(ctx))
			for st, err := range by.Watch(ctx) {
				require.NoError(t, err)
				if len(st.Holders) == holders {
					token = st.Holders[holders-1].Token
					break
				}
			}
			require.NoError(t, by.RequestStop(ctx, token, "drain"))
			f.NoKeys("/stop/") // the session has taken it
			require.NoError(t, held.Release())
			return token
		}
	}
	t.Run("Keep", func(t *testing.T) {
		t.Parallel()
		ctx := ctxT(t)
		s, client := f.Session(idle())
		sm, err := concurrency.NewSemaphore(s, "kept", 2, &concurrency.SemaphoreOptions{Keep: time.Hour})
		require.NoError(t, err)
		var other *concurrency.Permit
		require.Eventually(t, func() bool { // permits are kept: the next call has the same request
			a := acquire(t, ctx, sm)
			assertNoError(t, a.Release(ctx))
			client.ResetRequests()
			other = acquire(t, ctx, sm)
			if client.Requests()["Txn"] == 0 {
				return true
			}
			assertNoError(t, other.Release(ctx))
			return false
		}, soon, tick)
		answer := late(t, client, "kept", 2)
		asked := ask2(ctx, sm)
		answer()
		p := granted(t, asked, "etcd's answer")
		closed(t, p.StopRequested().Done(), "it is asked")
		require.NoError(t, p.Release(ctx))
		st, err := sem(t, admin, "kept", 2).Status(ctx)
		require.NoError(t, err)
		require.Len(t, st.Holders, 1, "it is not kept")
		require.NoError(t, other.Release(ctx))
	})
	t.Run("Handover", func(t *testing.T) {
		t.Parallel()
		ctx := ctxT(t)
		s, client := f.Session(idle())
		sm, err := concurrency.NewSemaphore(s, "passed", 2, &concurrency.SemaphoreOptions{Handover: time.Minute})
		require.NoError(t, err)
		require.NoError(t, acquire(t, ctx, sm).Release(ctx))
		f.NoKeys("/passed/queue/")
		answer := late(t, client, "passed", 1)
		asked := ask2(ctx, sm)
		token := answer()
		p := granted(t, asked, "a later request of its process")
		require.NoError(t, p.StopRequested().Err())
		require.Greater(t, p.Token(), token)
		for st, err := range sem(t, admin, "passed", 2).Watch(ctx) { // until the one that was asked to stop is released
			require.NoError(t, err)
			if len(st.Holders) == 1 {
				require.Equal(t, p.Token(), st.Holders[0].Token)
				break
			}
		}
		require.NoError(t, p.Release(ctx))
	})
}
