package concurrency_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/internal/rank"
)

// tiny starts a session of the smallest horizon.
func (f fixture) tiny(opts *concurrency.SessionOptions) (*concurrency.Session, *embedtest.Client) {
	f.T.Helper()
	return f.within(blind, opts)
}

// within starts a session with a horizon.
func (f fixture) within(h rank.Horizon, opts *concurrency.SessionOptions) (*concurrency.Session, *embedtest.Client) {
	f.T.Helper()
	c := f.NewClient(f.T, nil)
	o := *idle()
	if opts != nil {
		o = *opts
	}
	o.Prefix = f.Root
	s, err := concurrency.NewSession(rank.WithHorizon(ctxT(f.T), h), c.Client, "test", &o)
	require.NoError(f.T, err)
	f.T.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Grace)
		defer cancel()
		_ = s.Close(ctx)
	})
	return s, c
}

// queued waits until so many requests are in etcd.
func (f fixture) queued(n int) {
	f.T.Helper()
	require.Eventually(f.T, func() bool { return len(f.Keys("queue/")) == n }, soon, tick, "%d requests", n)
}

// sleeper is a request of a session of its own that is far, or about to be.
type sleeper struct {
	sm     *concurrency.Semaphore
	c      *embedtest.Client
	ch     <-chan answer
	cancel context.CancelFunc
	key    string
	far    bool
}

// line has n sessions queue one after the other, behind those that are in etcd already. Those that are
// far sleep when it returns.
func (f fixture) line(h rank.Horizon, limit, n int, opts ...concurrency.AcquireOption) (line []sleeper) {
	f.T.Helper()
	for range n {
		before := f.Keys("queue/")
		s, c := f.within(h, nil)
		ctx, cancel := context.WithCancel(ctxT(f.T))
		f.T.Cleanup(cancel)
		w := sleeper{sm: sem(f.T, s, "x", limit), c: c, cancel: cancel, far: int64(len(before)) >= h.Distance(int64(limit))}
		w.ch = ask2(ctx, w.sm, opts...)
		f.queued(len(before) + 1)
		for _, key := range f.Keys("queue/") {
			if !slices.Contains(before, key) {
				w.key = key
			}
		}
		line = append(line, w)
	}
	for _, w := range line {
		require.Eventually(f.T, func() bool { return concurrency.Sleeps(w.sm) == w.far }, soon, tick, "it sleeps")
	}
	return line
}

// blind is the smallest horizon without looks by the clock: what wakes a request are the rules.
var blind = func() rank.Horizon { h := rank.Tiny; h.Look, h.Renew = time.Hour, time.Hour; return h }()

// Far requests are admitted in their order, and each as soon as it fits.
func TestFarWaitersGoInOrder(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	s, _ := f.Session(idle())
	const limit = 2
	holders := []*concurrency.Permit{acquire(t, ctx, sem(t, s, "x", limit)), acquire(t, ctx, sem(t, s, "x", limit))}
	for _, w := range f.line(blind, limit, 6) {
		require.NoError(t, holders[0].Release(ctx))
		holders = append(holders[1:], granted(t, w.ch, "one after the other"))
	}
}

// W1: the key of a far request is deleted by hand. It queues anew, behind the one that came meanwhile,
// and never holds beside that.
func TestTrapW1OwnKeyGone(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	s, _ := f.Session(idle())
	holder := acquire(t, ctx, sem(t, s, "x", 1))
	line := f.line(blind, 1, 3)
	_, err := f.Client().Delete(ctx, line[1].key)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		resp, err := f.Client().Get(ctx, line[1].key)
		return err == nil && len(resp.Kvs) == 1
	}, soon, tick, "it queues anew, at once")
	require.NoError(t, holder.Release(ctx))
	for _, w := range []sleeper{line[0], line[2], line[1]} {
		p := granted(t, w.ch, "in the order of the keys")
		st, err := w.sm.Status(ctx)
		require.NoError(t, err)
		require.Len(t, st.Holders, 1)
		require.NoError(t, p.Release(ctx))
	}
}

// W2: all holders hold for long, but one. Those that sleep do not watch them: the limit is used.
func TestTrapW2LongHolders(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	s, _ := f.Session(idle())
	const limit = 4
	for range limit - 1 {
		acquire(t, ctx, sem(t, s, "x", limit))
	}
	last := acquire(t, ctx, sem(t, s, "x", limit))
	line := f.line(rank.Horizon{Watched: 2, Gone: 1, Look: time.Hour, Renew: time.Hour}, limit, 8)
	require.NoError(t, last.Release(ctx))
	for _, w := range line {
		require.NoError(t, granted(t, w.ch, "one after the other").Release(ctx))
	}
}

// W4: the request before a far one gives up. That admits nobody.
func TestTrapW4TheRequestBeforeGivesUp(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	s, _ := f.Session(idle())
	holder := acquire(t, ctx, sem(t, s, "x", 1))
	line := f.line(blind, 1, 3)
	line[0].cancel()
	require.ErrorIs(t, got(t, line[0].ch, "it gives up").err, context.Canceled)
	require.Eventually(t, func() bool { return !concurrency.Sleeps(line[1].sm) }, soon, tick, "it looks")
	require.Empty(t, line[1].ch, "and is not admitted")
	f.queued(3)
	require.NoError(t, holder.Release(ctx))
	require.NoError(t, granted(t, line[1].ch, "it is the next").Release(ctx))
	require.NoError(t, granted(t, line[2].ch, "the last").Release(ctx))
}

// W5: what a far request watches is deleted after the list and before its watch exists, and the same
// name is written again behind it. Neither waits for the other.
func TestTrapW5GoneBeforeTheWatch(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]bool{"gone": false, "written again": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, ctx := shared(t), ctxT(t)
			s, _ := f.Session(idle())
			before := acquire(t, ctx, sem(t, s, "x", 1))
			line := f.line(blind, 1, 4)
			watched := line[3]
			late, c := f.tiny(nil)
			sm := sem(t, late, "x", 1)
			var written atomic.Bool
			c.Inject(embedtest.Fault{Method: "Watch", Match: watchOf(watched.key), Do: embedtest.Pass, Before: func() {
				defer written.Store(true)
				if !again {
					watched.cancel()
					assertKeys(ctx, f, watched.key, 0)
					return
				}
				_, err := f.Client().Delete(ctx, watched.key)
				assertNoError(t, err)
				assertKeys(ctx, f, watched.key, 1)
			}})
			// The next that it reads is what it watches. If etcd is late, it reads the queue again: then another may be watched.
			read := make(chan struct{})
			var once sync.Once
			c.Inject(embedtest.Fault{
				Method: "Txn", Match: func(string, any) bool { return written.Load() }, Do: embedtest.Pass, Times: -1,
				After: func() { once.Do(func() { close(read) }) },
			})
			ch := ask2(ctx, sm)
			closed(t, read, "it has read what it watches")
			for _, w := range line[:3] {
				require.NoError(t, before.Release(ctx))
				before = granted(t, w.ch, "one after the other")
			}
			require.NoError(t, before.Release(ctx))
			require.NoError(t, granted(t, ch, "it is the next").Release(ctx))
			if again {
				require.NoError(t, granted(t, watched.ch, "it has queued anew").Release(ctx))
			}
		})
	}
}

// watchOf matches the creation of the watch of a key.
func watchOf(key string) func(string, any) bool {
	return func(_ string, msg any) bool {
		r, ok := msg.(*etcdserverpb.WatchRequest)
		return ok && string(r.GetCreateRequest().GetKey()) == key
	}
}

// readOf matches Txns that read a key, among others.
func readOf(key string) func(string, any) bool {
	return func(_ string, msg any) bool {
		r, ok := msg.(*etcdserverpb.TxnRequest)
		return ok && slices.ContainsFunc(r.Success, func(op *etcdserverpb.RequestOp) bool { return string(op.GetRequestRange().GetKey()) == key })
	}
}

// assertKeys waits until a key exists, or not.
func assertKeys(ctx context.Context, f fixture, key string, n int) {
	for ; ctx.Err() == nil; time.Sleep(tick) {
		if resp, err := f.Client().Get(ctx, key); err == nil && len(resp.Kvs) == n {
			return
		}
	}
}

// W6: a far request is evicted: its call ends at once, with the notice. The session of another one
// loses its lease: it queues anew.
func TestTrapW6NoticeToAFarRequest(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	s, _ := f.Session(idle())
	there := sem(t, s, "x", 1)
	holder := acquire(t, ctx, there)
	line := f.line(blind, 1, 3)
	st, err := there.Status(ctx)
	require.NoError(t, err)
	require.NoError(t, there.EvictToken(ctx, st.Waiters[1].Token, "no more"))
	err = got(t, line[1].ch, "it ends").err
	require.ErrorIs(t, err, concurrency.ErrEvicted)
	require.ErrorContains(t, err, "no more")
	require.NoError(t, f.RevokeLease(ctx, st.Waiters[2].Lease))
	require.Eventually(t, func() bool {
		st, err := there.Status(ctx)
		return err == nil && len(st.Waiters) == 2 && st.Waiters[1].Token > holder.Token()
	}, soon, tick, "on its next lease")
	require.NoError(t, holder.Release(ctx))
	for _, w := range []sleeper{line[0], line[2]} {
		require.NoError(t, granted(t, w.ch, "one after the other").Release(ctx))
	}
}

// W7: all that hold end at once. As many that slept are admitted.
func TestTrapW7MassRelease(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	s, _ := f.Session(idle())
	const limit = 4
	for range limit {
		acquire(t, ctx, sem(t, s, "x", limit))
	}
	line := f.line(blind, limit, 2*limit)
	require.NoError(t, f.RevokeLease(ctx, s.Lease()))
	var held []*concurrency.Permit
	for _, w := range line[:limit] {
		held = append(held, granted(t, w.ch, "it holds beside the others"))
	}
	for _, p := range held {
		require.NoError(t, p.Release(ctx))
	}
	for _, w := range line[limit:] {
		require.True(t, w.far)
		granted(t, w.ch, "so do those that were far")
	}
}

// W10: many callers of one session wait. One list shows all of them as admitted.
func TestTrapW10ManyWaitersOfOneSession(t *testing.T) {
	t.Parallel()
	f, ctx := own(t, 1), ctxT(t)
	s, _ := f.Session(idle())
	holder := acquire(t, ctx, sem(t, s, "x", 1))
	f.line(blind, 1, 2)
	many, c := f.tiny(nil)
	sm := sem(t, many, "x", 1)
	var asks []<-chan answer
	const n = 40
	for range n {
		asks = append(asks, ask2(ctx, sm))
	}
	f.queued(3 + n)
	require.Eventually(t, func() bool { return concurrency.Sleeps(sm) }, soon, tick)
	c.ResetRequests()
	require.NoError(t, sem(t, s, "x", 1).SetLimit(ctx, 3+n))
	for _, ask := range asks {
		granted(t, ask, "it fits")
	}
	require.Less(t, c.Requests()["Txn"], n/2, "lists and looks")
	require.NoError(t, holder.Release(ctx))
}

// W11: a limit is raised by more than wait: all that sleep are admitted.
func TestTrapW11LimitRaisedFar(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	s, _ := f.Session(idle())
	sm := sem(t, s, "x", 1)
	acquire(t, ctx, sm)
	line := f.line(blind, 1, 6)
	require.NoError(t, sm.SetLimit(ctx, 1000))
	for _, w := range line {
		granted(t, w.ch, "it fits")
	}
}

// W3, W13: while a request sleeps, etcd is compacted and the limit is lowered; what was admitted stays.
func TestTrapW13CompactionUnderFarRequests(t *testing.T) {
	t.Parallel()
	f, ctx := own(t, 1), ctxT(t)
	s, _ := f.Session(idle())
	sm := sem(t, s, "x", 2)
	one, two := acquire(t, ctx, sm), acquire(t, ctx, sm)
	line := f.line(blind, 2, 5)
	resp, err := f.Client().Get(ctx, "x")
	require.NoError(t, err)
	_, err = f.Client().Compact(ctx, resp.Header.Revision, clientv3.WithCompactPhysical())
	require.NoError(t, err)
	for _, w := range line {
		w.c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.FailWith})
	}
	require.NoError(t, sm.SetLimit(ctx, 1))
	require.NoError(t, one.Release(ctx))
	require.Empty(t, line[0].ch)
	require.NoError(t, two.Release(ctx))
	for _, w := range line {
		p := granted(t, w.ch, "one after the other")
		st, err := sm.Status(ctx)
		require.NoError(t, err)
		require.Len(t, st.Holders, 1)
		require.NoError(t, p.Release(ctx))
	}
}

// W14: however often a request sleeps and follows, its session opens one stream of watches.
func TestTrapW14OneStream(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	s, _ := f.Session(idle())
	holder := acquire(t, ctx, sem(t, s, "x", 1))
	line := f.line(blind, 1, 4)
	opened := line[3].c.Requests()["Watch"]
	require.NoError(t, holder.Release(ctx))
	for _, w := range line {
		require.NoError(t, granted(t, w.ch, "one after the other").Release(ctx))
	}
	require.Equal(t, opened, line[3].c.Requests()["Watch"])
	f.streams(line[3].c)
}

// A leader with many candidates behind it follows its own key alone, and ends with it.
func TestTermInACrowd(t *testing.T) {
	t.Parallel()
	for name, strike := range map[string]func(ctx context.Context, f fixture, key string) error{
		"deleted": func(ctx context.Context, f fixture, key string) error {
			_, err := f.Client().Delete(ctx, key)
			return err
		},
		"without a lease": func(ctx context.Context, f fixture, key string) error {
			_, err := f.Client().Put(ctx, key, "mine")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx, cancel := context.WithCancel(ctxT(t))
			defer cancel()
			opts, reported := traced(idle())
			s, c := f.tiny(opts)
			term, err := election(t, s, "x").Campaign(ctx)
			require.NoError(t, err)
			key := f.Keys("/queue/")[0]
			alone := c.Inject(embedtest.Fault{Method: "Watch", Match: watchOf(key), Do: embedtest.Pass})
			others, _ := f.Session(idle())
			for n := range 3 {
				go func() { _, _ = election(t, others, "x").Campaign(ctx) }()
				f.queued(2 + n)
			}
			require.NoError(t, alone.WaitHit(ctx), "it watches its own key")
			require.NoError(t, term.Err())
			require.NoError(t, strike(ctx, f, key))
			lostBy(t, term, concurrency.ErrLost)
			require.Equal(t, term.Token(), got(t, reported.permit, "the hook").Token)
		})
	}
}
