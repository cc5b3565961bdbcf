package concurrency_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// Failures of other limiters: section P of internal/proof/tested-failures.md. Most of these use a limiter with a
// total, which has two of everything that can go wrong.

// P4: a holder is declared dead, its permit goes to another, and its work ends after all. Its release,
// however often it is repeated, frees nothing of the other's. Neither does a second copy of a release that
// etcd receives when the same keys are those of the next request: each deletion is of its own revision.
func TestPeerP4DoubleRelease(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	other, _ := f.Session(idle())
	here, there := totaled(t, s, "llm", 1, 1).Key("a"), totaled(t, other, "llm", 1, 1).Key("a")
	stale := acquire(t, ctx, here)
	require.NoError(t, f.RevokeLease(ctx, s.Lease()))
	p := acquire(t, ctx, there)
	waits := ask(t, ctx, there)
	for range 11 {
		require.ErrorIs(t, stale.Release(ctx), concurrency.ErrLost)
	}
	require.NoError(t, p.Err())
	st, err := there.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, []int{1, 1, 1}, []int{st.Used, len(st.Holders), len(st.Waiters)})
	waiting(t, waits, "one holds")
	for range 11 {
		require.NoError(t, p.Release(ctx))
	}
	q := granted(t, waits, "it was released")
	_, err = here.TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull, "eleven releases have freed one permit")
	require.NoError(t, q.Release(ctx))
	p = acquire(t, ctx, here)
	keys := f.Keys("/queue/")
	require.Len(t, keys, 2, "one at the key and one in the total")
	late := c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.Duplicate})
	require.NoError(t, p.Release(ctx))
	next := acquire(t, ctx, here)
	require.Equal(t, keys, f.Keys("/queue/"), "the next request has the same keys")
	require.NoError(t, late.Release(), "the copy arrives")
	require.Equal(t, 1, late.Hits())
	require.Equal(t, keys, f.Keys("/queue/"), "the copy deletes nothing")
	_, err = there.TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull)
	require.NoError(t, next.Release(ctx))
	f.NoKeys("/queue/")
}

// P5: processes that know nothing yet of a key ask for it at the same time, while requests in front of
// theirs end: what counts is who holds, not who is among the first.
func TestPeerP5ColdProcesses(t *testing.T) {
	t.Parallel()
	for name, total := range map[string]int{"without a total": 0, "with a total": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			const limit = 2
			var inside gauge
			var wg sync.WaitGroup
			for i := range 12 {
				s, _ := f.Session(idle())
				cold := totaled(t, s, "llm", limit, total).Key("a")
				wg.Go(func() {
					given, giveUp := context.WithCancel(ctx)
					defer giveUp()
					if i%3 == 2 { // it leaves a gap in front of the others
						time.AfterFunc(time.Duration(i)*time.Millisecond, giveUp)
					}
					p, err := cold.Acquire(given)
					if err != nil {
						assertNoError(t, ignore(err, context.Canceled))
						return
					}
					inside.enter(1)
					time.Sleep(10 * time.Millisecond)
					inside.leave(1)
					assertNoError(t, p.Release(ctx))
				})
			}
			wg.Wait()
			require.LessOrEqual(t, inside.peak.Load(), int64(limit))
			require.Positive(t, inside.peak.Load())
			f.NoKeys("/queue/")
		})
	}
}

// P7: nothing that programs do again and again moves the number of permits: to create the limiter and
// set the same limit while all are held, to release twice, to give up, and to lose a lease.
func TestPeerP7PermitsDrift(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	const limit = 3
	s, _ := f.Session(idle())
	other, _ := f.Session(idle())
	exactly := func(when string) {
		lim := totaled(t, other, "llm", limit, limit)
		var held []*concurrency.Permit
		for range limit {
			p, err := lim.Key("a").TryAcquire(ctx)
			require.NoError(t, err, when)
			held = append(held, p)
		}
		_, err := lim.Key("a").TryAcquire(ctx)
		require.ErrorIs(t, err, concurrency.ErrFull, when)
		require.NoError(t, lim.SetDefault(ctx, limit))
		require.NoError(t, lim.Total().SetLimit(ctx, limit))
		_, err = totaled(t, s, "llm", limit, limit).Key("a").TryAcquire(ctx)
		require.ErrorIs(t, err, concurrency.ErrFull, "after the same limit was set again")
		for _, p := range held {
			require.NoError(t, p.Release(ctx))
			require.NoError(t, p.Release(ctx))
		}
	}
	exactly("at first")
	lim := totaled(t, s, "llm", limit, limit)
	held := []*concurrency.Permit{acquire(t, ctx, lim.Key("a"), concurrency.Weight(2)), acquire(t, ctx, lim.Key("a"), concurrency.ID("flow"))}
	_, err := lim.Key("a").Acquire(ctx, concurrency.Wait(time.Millisecond))
	require.Error(t, err)
	require.NoError(t, totaled(t, other, "llm", limit, limit).Key("a").ReleaseID(ctx, "flow"))
	got(t, held[1].Context().Done(), "the notice")
	require.NoError(t, held[1].Release(ctx))
	require.NoError(t, held[0].Release(ctx))
	exactly("after a wait that was given up and a release from elsewhere")
	p := acquire(t, ctx, lim.Key("a"), concurrency.Weight(limit))
	require.NoError(t, f.RevokeLease(ctx, s.Lease()))
	got(t, p.Context().Done(), "its lease")
	exactly("after a lost lease")
	f.NoKeys("/queue/")
}

// P8: a permit is released, or the limit raised, at the moment at which another request decides to
// wait: it is admitted by that, and by no timeout. No session reads a queue again that it follows: each of
// its lists belongs to a new watch, so no request was admitted by a poll.
func TestPeerP8LostWakeup(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	other, away := f.Session(idle())
	third, _ := f.Session(idle())
	for _, c := range []*embedtest.Client{c, away} {
		require.Eventually(t, func() bool { return c.Requests()["Range"] > 0 }, soon, tick, "the session lists its own range")
	}
	here, there, admin := totaled(t, s, "llm", 1, 1), totaled(t, other, "llm", 1, 1), totaled(t, third, "llm", 1, 1)
	for _, lim := range []*concurrency.KeyedLimiter{here, there} { // each compares the limits, before they change
		require.NoError(t, acquire(t, ctx, lim.Key("a")).Release(ctx))
	}
	c.ResetRequests()
	away.ResetRequests()
	for i := range 60 {
		lim, next := here, there
		if i%2 == 1 {
			lim, next = there, here
		}
		key := fmt.Sprint(i % 7)
		p := acquire(t, ctx, lim.Key(key))
		w := ask2(ctx, next.Key(key))
		time.Sleep(time.Duration(i%8) * 200 * time.Microsecond)
		if i%3 > 0 {
			require.NoError(t, p.Release(ctx))
			require.NoError(t, granted(t, w, "the permit was released").Release(ctx))
			continue
		}
		require.NoError(t, admin.Key(key).SetLimit(ctx, 2))
		require.NoError(t, admin.Total().SetLimit(ctx, 2))
		require.NoError(t, granted(t, w, "both limits were raised").Release(ctx))
		require.NoError(t, admin.ClearLimit(ctx, key))
		require.NoError(t, admin.Total().SetLimit(ctx, 1))
		require.NoError(t, p.Release(ctx))
	}
	for _, c := range []*embedtest.Client{c, away} {
		n := c.Requests()
		require.Positive(t, n["Watch.Send"])
		require.LessOrEqual(t, n["Range"], n["Watch.Send"], "lists, beside watches: %v", n)
	}
	f.NoKeys("/queue/")
}

// P9: limits change while requests come, wait and end. No more than the highest limit ever run, none
// waits forever, and once the change is made and what ran has ended, the new limit is exact.
func TestPeerP9LimitChangeRace(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	const high = 4
	var inside gauge
	crowd := func(limiters []*concurrency.KeyedLimiter, rounds int, during func()) {
		var wg sync.WaitGroup
		for _, lim := range limiters {
			for range 4 {
				wg.Go(func() {
					for range rounds {
						p, err := lim.Key("a").Acquire(ctx)
						if !assertNoError(t, err) {
							return
						}
						inside.enter(1)
						time.Sleep(time.Millisecond)
						inside.leave(1)
						assertNoError(t, p.Release(ctx))
					}
				})
			}
		}
		during()
		wg.Wait()
	}
	var limiters []*concurrency.KeyedLimiter
	for range 3 {
		s, _ := f.Session(idle())
		limiters = append(limiters, totaled(t, s, "llm", high, high))
	}
	admin := limiters[0]
	require.NoError(t, acquire(t, ctx, admin.Key("a")).Release(ctx))
	for _, lim := range limiters { // what they have agreed on may change from now on
		require.NoError(t, acquire(t, ctx, lim.Key("a")).Release(ctx))
	}
	crowd(limiters, 12, func() {
		for i := range 12 {
			n := 1 + i%high
			assertNoError(t, admin.SetDefault(ctx, n))
			assertNoError(t, limiters[1].Total().SetLimit(ctx, high-i%high))
			if i%4 == 3 {
				assertNoError(t, limiters[2].Key("a").SetLimit(ctx, n))
				assertNoError(t, admin.ClearLimit(ctx, "a"))
			}
		}
		assertNoError(t, admin.SetDefault(ctx, 1))
		assertNoError(t, admin.Total().SetLimit(ctx, high))
	})
	require.LessOrEqual(t, inside.peak.Load(), int64(high))
	inside.peak.Store(0)
	crowd(limiters, 3, func() {})
	require.EqualValues(t, 1, inside.peak.Load(), "the default is 1")
	f.NoKeys("/queue/")
}

// P10: of each commit of a request, at its key, in the total and of its release, the answer is lost. The
// request is made once, holds one permit, and nothing of it is left.
func TestPeerP10AmbiguousCommit(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	other, _ := f.Session(idle())
	here, there := totaled(t, s, "llm", 2, 2), totaled(t, other, "llm", 2, 2)
	require.NoError(t, acquire(t, ctx, here.Key("a")).Release(ctx))
	for _, contended := range []bool{false, true} {
		for skip := range 3 {
			name := fmt.Sprint("contended: ", contended, ", lost: ", skip)
			var first *concurrency.Permit
			if contended {
				first = acquire(t, ctx, there.Key("a"), concurrency.Weight(2))
			}
			lost := c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropResponse, Skip: skip})
			w := ask2(ctx, here.Key("a"), concurrency.Weight(2))
			if contended {
				require.Eventually(t, func() bool {
					st, err := there.Key("a").Status(ctx)
					return err == nil && len(st.Waiters) == 1
				}, soon, tick, name)
				require.NoError(t, first.Release(ctx))
			}
			p := granted(t, w, name)
			st, err := there.Total().Status(ctx)
			require.NoError(t, err)
			require.Equal(t, []int{2, 1, 0}, []int{st.Used, len(st.Holders), len(st.Waiters)}, name)
			_, err = there.Key("a").TryAcquire(ctx)
			require.ErrorIs(t, err, concurrency.ErrFull, name)
			require.NoError(t, p.Release(ctx), name)
			f.NoKeys("/queue/")
			require.Equal(t, 1, lost.Hits(), name)
			lost.Remove()
		}
	}
}

// P11: a key with hundreds of waiting requests costs another key nothing: not a wait, not a read, and
// not one Txn more than on an empty limiter.
func TestPeerP11BusyKeyDelaysNoOther(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	quiet, c := f.Session(idle())
	busy, other := totaled(t, s, "llm", 1, 2), totaled(t, quiet, "llm", 1, 2)
	p := acquire(t, ctx, busy.Key("busy"))
	require.NoError(t, acquire(t, ctx, other.Key("quiet")).Release(ctx), "it compares the limits")
	given, giveUp := context.WithCancel(ctx)
	defer giveUp()
	const crowd = 300
	done := make(chan error, crowd)
	for range crowd {
		go func() {
			_, err := busy.Key("busy").Acquire(given)
			done <- err
		}()
	}
	require.Eventually(t, func() bool {
		st, err := busy.Key("busy").Status(ctx)
		return err == nil && len(st.Waiters) == crowd
	}, soon, 10*time.Millisecond)
	for range 5 {
		c.ResetRequests()
		require.NoError(t, acquire(t, ctx, other.Key("quiet")).Release(ctx))
		require.Equal(t, []int{2, 0}, []int{c.Requests()["Txn"], c.Requests()["Range"]})
	}
	giveUp()
	for range crowd {
		require.ErrorIs(t, got(t, done, "it gives up"), context.Canceled)
	}
	require.NoError(t, p.Release(ctx))
}

// P12: a key is text and nothing more: one that looks like a pattern or a path is a key like any other,
// and stays the request's key when it queues again.
func TestPeerP12KeysAreText(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	other, _ := f.Session(idle())
	here, there := totaled(t, s, "llm", 1, 100), totaled(t, other, "llm", 1, 100)
	keys := []string{"*", "**", "", "?", "%", "%2F", "/", "//", "a/", "a", "a/b", "..", " ", "\x00", "ck:*", "default", "limit", "total", "undefined", "null", strings.Repeat("k", 255)}
	held := map[string]*concurrency.Permit{}
	for _, key := range keys {
		p, err := here.Key(key).Acquire(ctx)
		if key == "" {
			require.ErrorIs(t, err, concurrency.ErrInvalid, "a request without a key would have no limit by accident")
			continue
		}
		require.NoError(t, err, "%q: the others are keys of their own", key)
		held[key] = p
	}
	for key := range held {
		_, err := there.Key(key).TryAcquire(ctx)
		require.ErrorIs(t, err, concurrency.ErrFull, "%q", key)
	}
	waits := map[string]<-chan answer{}
	for key := range held {
		waits[key] = ask(t, ctx, there.Key(key))
	}
	require.NoError(t, f.RevokeLease(ctx, other.Lease())) // all wait again, on another lease
	for key, p := range held {
		require.NoError(t, p.Release(ctx))
		q := granted(t, waits[key], fmt.Sprintf("%q: its key is free", key))
		_, err := here.Key(key).TryAcquire(ctx)
		require.ErrorIs(t, err, concurrency.ErrFull, "%q: it has its permit at the same key", key)
		require.NoError(t, q.Release(ctx))
	}
	f.NoKeys("/queue/")
}

// P16: the number of processes, sessions and limiter values of one name multiplies nothing.
func TestPeerP16OneLimitForAll(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	const limit, total = 2, 3
	admittedOf := map[string]int{}
	for i := range 12 {
		s, _ := f.Session(idle())
		for range 2 {
			key := fmt.Sprint("key ", i%4)
			_, err := totaled(t, s, "llm", limit, total).Key(key).TryAcquire(ctx)
			if err == nil {
				admittedOf[key]++
				continue
			}
			require.ErrorIs(t, err, concurrency.ErrFull)
		}
	}
	sum := 0
	for _, n := range admittedOf {
		require.LessOrEqual(t, n, limit)
		sum += n
	}
	require.Equal(t, total, sum)
}
