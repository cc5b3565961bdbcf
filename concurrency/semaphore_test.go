package concurrency_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/observe"
)

// T28: the limit is reached exactly, not passed and not missed by one; with
// weights as well.
func TestLimitIsExact(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	sm := sem(t, s, "x", 5)
	var held []*concurrency.Permit
	for _, w := range []int{1, 3, 1} {
		p, err := sm.TryAcquire(ctx, concurrency.Weight(w))
		require.NoError(t, err)
		held = append(held, p)
	}
	_, err := sm.TryAcquire(ctx)
	var full *concurrency.FullError
	require.ErrorAs(t, err, &full)
	require.Equal(t, concurrency.FullError{Name: "x", Limit: 5, Used: 5}, *full)
	require.NoError(t, held[1].Release(ctx))
	_, err = sm.TryAcquire(ctx, concurrency.Weight(4))
	require.ErrorIs(t, err, concurrency.ErrFull, "4 of 3 free")
	p, err := sm.TryAcquire(ctx, concurrency.Weight(3))
	require.NoError(t, err)
	require.NoError(t, p.Release(ctx))
}

// T28: the same for calls that are willing to wait: a call that fits exactly does not,
// and one too many does, by count and by weight.
func TestLimitIsExactForCallers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		limit int // 0: a mutex
		held  []int
		more  int // one too many
	}{
		"a mutex":              {0, []int{1}, 1},
		"light beside light":   {3, []int{1, 1, 1}, 1},
		"light beside heavy":   {3, []int{3}, 1},
		"light beside both":    {4, []int{1, 2, 1}, 1},
		"heavy beside light":   {3, []int{1, 1}, 2},
		"heavy beside heavy":   {5, []int{3}, 3},
		"heavy beside both":    {6, []int{1, 3}, 3},
		"as heavy as possible": {3, []int{1}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			waits := make(chan int64, 1)
			s, _ := f.Session(&concurrency.SessionOptions{Hooks: testkit.Trace{
				Waiting: func(i observe.Waiting) { waits <- i.Token },
			}.Hooks()})
			var acquire func(weight int) (*concurrency.Permit, error)
			if tt.limit == 0 {
				mu := mutex(t, s, "x")
				acquire = func(int) (*concurrency.Permit, error) { return mu.Lock(ctx) }
			} else {
				sm := sem(t, s, "x", tt.limit)
				acquire = func(weight int) (*concurrency.Permit, error) { return sm.Acquire(ctx, concurrency.Weight(weight)) }
			}
			var ps []*concurrency.Permit
			for _, w := range tt.held {
				p, err := acquire(w)
				require.NoError(t, err)
				ps = append(ps, p)
			}
			ch := make(chan answer, 1)
			go func() { p, err := acquire(tt.more); ch <- answer{p, err} }()
			select {
			case a := <-ch:
				require.FailNow(t, "it did not wait", "%v", a.err)
			case <-waits:
			case <-ctx.Done():
				require.NoError(t, ctx.Err())
			}
			waiting(t, ch, "all are held")
			for _, p := range ps {
				require.NoError(t, p.Release(ctx))
			}
			require.NoError(t, granted(t, ch, "it fits").Release(ctx))
		})
	}
}

// T16: a new process counts the holders that were there before it.
func TestNewcomersSeeHolders(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	old, _ := f.Session(nil)
	for range 3 {
		acquire(t, ctx, sem(t, old, "x", 3))
	}
	fresh, _ := f.Session(nil)
	_, err := sem(t, fresh, "x", 3).TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull)
}

// T19: releasing twice, at once or one after the other, never frees more than one
// permit.
func TestDoubleRelease(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	sm := sem(t, s, "x", 2)
	p, keep := acquire(t, ctx, sm), acquire(t, ctx, sm)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { require.NoError(t, p.Release(ctx)) })
	}
	wg.Wait()
	next := acquire(t, ctx, sm) // it may be in the same slot
	require.NoError(t, p.Release(ctx))
	require.NoError(t, next.Err())
	_, err := sm.TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull)
	require.NoError(t, keep.Release(ctx))
	require.NoError(t, next.Release(ctx))
}

// T24, F31: two goroutines of one session are two requests.
func TestGoroutinesOfOneSessionExclude(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	var g gauge
	var wg sync.WaitGroup
	for range 8 {
		mu := mutex(t, s, "x") // also by two values of one name
		wg.Go(func() {
			for range 10 {
				require.NoError(t, mu.Do(ctx, func(context.Context, *concurrency.Permit) error {
					g.enter(1)
					runtime.Gosched()
					g.leave(1)
					return nil
				}))
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, g.peak.Load())
}

// T30: MaxHold takes a stuck permit back, and only that: holders that renew are
// not touched.
func TestMaxHold(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	lost := make(chan *concurrency.LostError, 10)
	s, _ := f.Session(&concurrency.SessionOptions{Hooks: testkit.Trace{Lost: func(e *concurrency.LostError) { lost <- e }}.Hooks()})
	sm := sem(t, s, "x", 2)
	stuck := acquire(t, ctx, sm, concurrency.MaxHold(50*time.Millisecond))
	fine := acquire(t, ctx, sm)
	require.False(t, stuck.Deadline().After(time.Now().Add(50*time.Millisecond)))
	next := ask(t, ctx, sm)
	closed(t, stuck.Context().Done(), "held too long")
	require.ErrorIs(t, context.Cause(stuck.Context()), concurrency.ErrTooLong)
	require.Equal(t, stuck.Token(), got(t, lost, "the hook").Token)
	p := granted(t, next, "the stuck permit is free")
	require.ErrorIs(t, stuck.Release(ctx), concurrency.ErrTooLong)
	require.NoError(t, fine.Err())
	require.NoError(t, p.Release(ctx))
	require.NoError(t, fine.Release(ctx))
}

// The guard is true in a Txn while the permit is held and false from its release
// on, even if the slot is taken anew.
func TestGuard(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(nil)
	mu := mutex(t, s, "x")
	first, err := mu.Lock(ctx)
	require.NoError(t, err)
	write := func(p *concurrency.Permit) bool {
		resp, err := c.Txn(ctx).If(p.Guard()).Then(clientv3.OpPut(f.Root+"effect", "x")).Commit()
		require.NoError(t, err)
		return resp.Succeeded
	}
	require.True(t, write(first))
	require.NoError(t, first.Release(ctx))
	require.False(t, write(first))
	second, err := mu.Lock(ctx)
	require.NoError(t, err)
	require.Greater(t, second.Token(), first.Token(), "G3: tokens rise")
	require.False(t, write(first))
	require.True(t, write(second))
}

// F40: the token is the create revision of the permit's own key, however it was
// acquired.
func TestTokenIsTheCreateRevision(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(nil)
	sm := sem(t, s, "x", 1)
	check := func(p *concurrency.Permit) {
		resp, err := f.Client().Get(ctx, f.Keys("queue/")[0])
		require.NoError(t, err)
		require.Equal(t, resp.Kvs[0].CreateRevision, p.Token())
		require.NoError(t, p.Release(ctx))
	}
	check(acquire(t, ctx, sm))
	p, err := sm.TryAcquire(ctx)
	require.NoError(t, err)
	check(p)
	c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropResponse})
	check(acquire(t, ctx, sm))
	p = acquire(t, ctx, sm)
	w := ask(t, ctx, sm)
	require.NoError(t, p.Release(ctx))
	check(granted(t, w, "by waiting"))
}
