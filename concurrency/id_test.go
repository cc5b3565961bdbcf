package concurrency_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/observe"
)

func TestIDIsHeldOnce(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, _ := f.Session(&concurrency.SessionOptions{Owner: "alice"})
	b, _ := f.Session(&concurrency.SessionOptions{Owner: "bob"})
	sa, sb := sem(t, a, "x", 3), sem(t, b, "x", 3)
	id := "order/17\xff" // any bytes
	p := acquire(t, ctx, sa, concurrency.ID(id), concurrency.Note("hello"))

	var held *concurrency.HeldError
	for _, call := range []func() (*concurrency.Permit, error){
		func() (*concurrency.Permit, error) { return sb.Acquire(ctx, concurrency.ID(id)) },
		func() (*concurrency.Permit, error) { return sb.TryAcquire(ctx, concurrency.ID(id)) },
		func() (*concurrency.Permit, error) { return sa.Acquire(ctx, concurrency.ID(id)) },
	} {
		_, err := call()
		require.ErrorAs(t, err, &held)
		require.Equal(t, "alice", held.Request.Owner)
		require.Equal(t, p.Token(), held.Request.Token)
		require.Equal(t, "hello", held.Request.Note)
	}
	require.Len(t, f.Keys("queue/"), 1, "those who were refused leave nothing")
	require.NoError(t, p.Release(ctx))
	require.Empty(t, f.Keys("/request-id/"), "the ID goes with its permit")
	q := acquire(t, ctx, sb, concurrency.ID(id))
	require.NoError(t, q.Release(ctx))
}

// At most one of many simultaneous calls with one ID gets through.
func TestIDRace(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	var g gauge
	var wg sync.WaitGroup
	for range 4 {
		s, _ := f.Session(nil)
		sm := sem(t, s, "x", 100)
		for range 4 {
			wg.Go(func() {
				for range 10 {
					p, err := sm.Acquire(ctx, concurrency.ID("one"))
					var held *concurrency.HeldError
					if err != nil {
						require.ErrorAs(t, err, &held)
						continue
					}
					g.enter(1)
					g.leave(1)
					require.NoError(t, p.Release(ctx))
				}
			})
		}
	}
	wg.Wait()
	require.EqualValues(t, 1, g.peak.Load())
}

func TestTakeOver(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, _ := f.Session(&concurrency.SessionOptions{Owner: "alice"})
	b, _ := f.Session(&concurrency.SessionOptions{Owner: "bob"})
	sa, sb := sem(t, a, "x", 1), sem(t, b, "x", 1)
	p := acquire(t, ctx, sa, concurrency.ID("i"))
	q := acquire(t, ctx, sb, concurrency.ID("i"), concurrency.TakeOver())
	require.Greater(t, q.Token(), p.Token())
	closed(t, p.Context().Done(), "the former owner notices")
	require.ErrorIs(t, p.Err(), concurrency.ErrEvicted)
	require.ErrorContains(t, p.Err(), "bob")
	require.ErrorIs(t, p.Release(ctx), concurrency.ErrEvicted)
	require.NoError(t, q.Err(), "and its release does not touch the successor")

	// A waiting request is taken over as well.
	w := ask(t, ctx, sa, concurrency.ID("w"))
	w2 := ask2(ctx, sb, concurrency.ID("w"), concurrency.TakeOver())
	a1 := got(t, w, "the waiting owner's Acquire returns")
	require.ErrorIs(t, a1.err, concurrency.ErrEvicted)
	require.NoError(t, q.Release(ctx))
	require.NoError(t, granted(t, w2, "the successor").Release(ctx))
	f.NoKeys("queue/")
	f.NoKeys("/request-id/")
}

// T15: a request of which only the ID key or only the queue key is left blocks
// no caller.
func TestHalfDeletedRequests(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sm, concurrency.ID("i"))
	for _, key := range f.Keys("queue/") {
		_, err := f.Client().Delete(ctx, key)
		require.NoError(t, err)
	}
	q := acquire(t, ctx, sm, concurrency.ID("i"))
	require.ErrorIs(t, p.Release(ctx), concurrency.ErrLost, "the release reports that the key was gone")
	require.NoError(t, q.Err())
	for _, key := range f.Keys("/request-id/") {
		_, err := f.Client().Delete(ctx, key)
		require.NoError(t, err)
	}
	require.NoError(t, q.Release(ctx))
	f.NoKeys("queue/")
}

// T15: of a request with an ID only the ID's key is left, and its slot is used by
// another request by now. That one is not taken for the owner of the ID: it is neither
// named nor evicted, and the ID is free.
func TestHalfDeletedRequestSparesTheNextInItsSlot(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	other, _ := f.Session(nil)
	sm, there := sem(t, s, "x", 2), sem(t, other, "x", 2)
	for _, call := range []func() error{
		func() error { return there.Evict(ctx, "i", "") },
		func() error { return there.ReleaseID(ctx, "i") },
		func() error {
			p, err := there.Acquire(ctx, concurrency.ID("i"), concurrency.TakeOver())
			if err == nil {
				err = p.Release(ctx)
			}
			return errors.Join(concurrency.ErrNotHeld, err)
		},
		func() error {
			p, err := there.Acquire(ctx, concurrency.ID("i"))
			if err == nil {
				err = p.Release(ctx)
			}
			return errors.Join(concurrency.ErrNotHeld, err)
		},
	} {
		p := acquire(t, ctx, sm, concurrency.ID("i"))
		slot := f.Keys("queue/")
		_, err := f.Client().Delete(ctx, slot[0])
		require.NoError(t, err)
		require.ErrorIs(t, p.Release(ctx), concurrency.ErrLost)
		require.Len(t, f.Keys("/request-id/"), 1)
		next := acquire(t, ctx, sm)
		require.Equal(t, slot, f.Keys("queue/"), "the same slot")
		err = call()
		require.ErrorIs(t, err, concurrency.ErrNotHeld)
		require.NotErrorIs(t, err, concurrency.ErrLost)
		var held *concurrency.HeldError
		require.NotErrorAs(t, err, &held)
		require.Equal(t, slot, f.Keys("queue/"), "it is kept")
		require.NoError(t, next.Err())
		require.NoError(t, next.Release(ctx))
		f.NoKeys("/request-id/")
	}
}

func TestReleaseIDFromElsewhere(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, _ := f.Session(nil)
	b, _ := f.Session(nil)
	sa, sb := sem(t, a, "x", 1), sem(t, b, "x", 1)
	p := acquire(t, ctx, sa, concurrency.ID("flow"))
	require.NoError(t, sb.ReleaseID(ctx, "flow"))
	closed(t, p.Context().Done(), "its permit ends")
	require.ErrorIs(t, p.Err(), concurrency.ErrReleased)
	require.NotErrorIs(t, p.Err(), concurrency.ErrLost, "an end that was wanted is no loss")
	require.NoError(t, p.Release(ctx))
	require.ErrorIs(t, sb.ReleaseID(ctx, "flow"), concurrency.ErrNotHeld)
	require.NoError(t, acquire(t, ctx, sb).Release(ctx))
	f.NoKeys("/request-id/")
}

// With OnlyToken, ReleaseID releases the request that its caller means, and no later one with the same ID; also at a
// key of a limiter with a total, whose permits have the token of the total.
func TestReleaseIDOnlyToken(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, _ := f.Session(nil)
	b, _ := f.Session(nil)
	limited := func(s *concurrency.Session) *concurrency.Semaphore {
		l, err := concurrency.NewKeyedLimiter(s, "y", 1, &concurrency.KeyedLimiterOptions{Total: 2})
		require.NoError(t, err)
		return l.Key("k")
	}
	for _, q := range [][2]*concurrency.Semaphore{{sem(t, a, "x", 1), sem(t, b, "x", 1)}, {limited(a), limited(b)}} {
		first := acquire(t, ctx, q[0], concurrency.ID("flow"))
		require.NoError(t, first.Release(ctx))
		second := acquire(t, ctx, q[0], concurrency.ID("flow"))
		err := q[1].ReleaseID(ctx, "flow", concurrency.OnlyToken(first.Token()))
		require.ErrorIs(t, err, concurrency.ErrNotHeld)
		require.ErrorContains(t, err, fmt.Sprintf(`ID "flow" with token %d of`, first.Token())) // A427: there is a request with that ID
		require.NoError(t, second.Err())
		require.ErrorIs(t, q[1].ReleaseID(ctx, "other", concurrency.OnlyToken(second.Token())), concurrency.ErrNotHeld)
		require.ErrorIs(t, q[1].ReleaseID(ctx, "flow", nil), concurrency.ErrInvalid)
		require.NoError(t, second.Err())
		st, err := q[1].Status(ctx)
		require.NoError(t, err)
		require.Len(t, st.Holders, 1)
		require.NoError(t, q[1].ReleaseID(ctx, "flow", concurrency.OnlyToken(st.Holders[0].Token)))
		closed(t, second.Context().Done(), "its permit ends")
		require.ErrorIs(t, second.Err(), concurrency.ErrReleased)
		require.NoError(t, second.Release(ctx))
	}
}

func TestEvict(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	lost := make(chan *concurrency.LostError, 4)
	a, _ := f.Session(&concurrency.SessionOptions{Hooks: testkit.Trace{Lost: func(e *concurrency.LostError) { lost <- e }}.Hooks()})
	admin, _ := f.Session(&concurrency.SessionOptions{Owner: "operator"})
	sa, control := sem(t, a, "x", 1), sem(t, admin, "x", 1)
	p := acquire(t, ctx, sa, concurrency.ID("holder"))
	w := ask(t, ctx, sa, concurrency.ID("waiter"))

	require.NoError(t, control.Evict(ctx, "waiter", "too many"))
	require.ErrorIs(t, got(t, w, "the waiter's Acquire returns").err, concurrency.ErrEvicted)
	require.NoError(t, control.Evict(ctx, "holder", "it is stuck"))
	closed(t, p.Context().Done(), "the holder's context ends")
	e := got(t, lost, "the hook")
	require.Equal(t, concurrency.ErrEvicted, e.Cause)
	require.Equal(t, "by operator: it is stuck", e.Reason)
	require.ErrorIs(t, control.Evict(ctx, "holder", ""), concurrency.ErrNotHeld)
	require.ErrorIs(t, control.EvictToken(ctx, p.Token(), ""), concurrency.ErrNotHeld)
	require.ErrorIs(t, control.Evict(ctx, "x", strings.Repeat("x", 1025)), concurrency.ErrInvalid)
	f.NoKeys("queue/")
	f.NoKeys("notice/") // delivered, and then cleaned up
	require.NoError(t, acquire(t, ctx, sa, concurrency.ID("holder")).Release(ctx))
}

// Two IDs that look alike as text stay apart, also when one is evicted by token.
func TestEvictTokenSparesOtherIDs(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	sm := sem(t, s, "x", 9)
	a := acquire(t, ctx, sm, concurrency.ID("a\xff"))
	b := acquire(t, ctx, sm, concurrency.ID("a\uFFFD"))
	require.NoError(t, sm.EvictToken(ctx, a.Token(), "for a test"))
	closed(t, a.Context().Done(), "eviction")
	var held *concurrency.HeldError
	_, err := sm.Acquire(ctx, concurrency.ID("a\uFFFD"))
	require.ErrorAs(t, err, &held)
	require.Equal(t, b.Token(), held.Request.Token)
	require.NoError(t, acquire(t, ctx, sm, concurrency.ID("a\xff")).Release(ctx))
	require.NoError(t, sm.EvictToken(ctx, b.Token(), "for a test"))
	closed(t, b.Context().Done(), "eviction")
	f.NoKeys("/request-id/")
}

func TestStatusAndWatch(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx, cancel := context.WithCancel(ctxT(t))
	s, _ := f.Session(&concurrency.SessionOptions{Owner: "me"})
	watcher, _ := f.Session(nil)
	sm := sem(t, s, "x", 2)
	begun := time.Now().Add(-time.Second)
	p := acquire(t, ctx, sm, concurrency.Note("first"), concurrency.Weight(2))
	w := ask(t, ctx, sm, concurrency.ID("second"))
	st, err := sm.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, 2, st.Used)
	require.Len(t, st.Holders, 1)
	h := st.Holders[0]
	require.WithinRange(t, h.Requested, begun, time.Now().Add(time.Second))
	require.Equal(t, concurrency.Request{Token: p.Token(), Owner: "me", Note: "first", Weight: 2, Lease: s.Lease(), Requested: h.Requested}, h)
	require.Len(t, st.Waiters, 1)
	require.Equal(t, "second", st.Waiters[0].ID)

	steps := make(chan concurrency.Status, 100)
	ended := make(chan error, 1)
	go func() {
		for st, err := range sem(t, watcher, "x", 2).Watch(ctx) {
			if err != nil {
				ended <- err
				return
			}
			steps <- st
		}
	}()
	until := func(what string, ok func(concurrency.Status) bool) {
		for {
			if st := got(t, steps, what); ok(st) {
				return
			}
		}
	}
	until("the present state", func(st concurrency.Status) bool { return len(st.Waiters) == 1 && st.Used == 2 })
	require.NoError(t, p.Release(ctx))
	q := granted(t, w, "second")
	until("the waiter holds", func(st concurrency.Status) bool { return len(st.Holders) == 1 && st.Holders[0].ID == "second" })
	require.NoError(t, sm.SetLimit(ctx, 7))
	until("the limit", func(st concurrency.Status) bool { return st.Limit == 7 })
	require.NoError(t, q.Release(ctx))
	until("nobody", func(st concurrency.Status) bool { return st.Used == 0 && len(st.Holders) == 0 })
	cancel()
	require.ErrorIs(t, got(t, ended, "the watch ends"), context.Canceled)
}

// A caller that waits long learns why: who holds, when its session renewed its lease, and
// when a dead one frees at the latest.
func TestWaitingIsReported(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	infos, begun := make(chan observe.Waiting, 100), time.Now()
	s, _ := f.Session(&concurrency.SessionOptions{ReportEvery: 20 * time.Millisecond,
		Hooks: testkit.Trace{Waiting: func(i observe.Waiting) { infos <- i }}.Hooks()})
	other, _ := f.Session(&concurrency.SessionOptions{Owner: "other"})
	p := acquire(t, ctx, sem(t, other, "x", 1), concurrency.Note("busy"))
	w := ask(t, ctx, sem(t, s, "x", 1))
	first := got(t, infos, "the first report")
	require.Equal(t, 1, first.Ahead)
	require.Equal(t, 1, first.Limit)
	require.Len(t, first.Blocking, 1)
	require.Equal(t, "other", first.Blocking[0].Owner)
	require.Equal(t, "busy", first.Blocking[0].Note)
	require.True(t, first.Blocking[0].ExpiresBy.IsZero())
	require.True(t, first.Blocking[0].Renewed.IsZero())
	second := got(t, infos, "a later report")
	require.WithinRange(t, second.Blocking[0].ExpiresBy, begun, time.Now().Add(17*time.Second), "a TTL and what etcd takes")
	require.WithinRange(t, second.Blocking[0].Renewed, begun.Add(-time.Second), time.Now())
	require.Greater(t, second.Waited, first.Waited)
	require.NoError(t, p.Release(ctx))
	require.NoError(t, granted(t, w, "at last").Release(ctx))
}

// A630: a note is for operators, and refuses no work: it is cut and made valid text, as that of a request is. One of 2,000
// bytes, or an order number in Latin-1, was ErrInvalid, and the payment was not made.
func TestNoteRefusesNoWork(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, _ := f.Session(nil)
	sm := sem(t, s, "s", 1)
	for note, want := range map[string]string{
		strings.Repeat("é", 1000): strings.Repeat("é", 512),
		"order \xff":              "order \uFFFD",
		"as it is\n":              "as it is\n",
	} {
		require.NoError(t, sm.Do(ctxT(t), func(ctx context.Context, _ *concurrency.Permit) error {
			st, err := sm.Status(ctx)
			require.NoError(t, err)
			require.Equal(t, want, st.Holders[0].Note)
			return nil
		}, concurrency.Note(note)))
	}
}
