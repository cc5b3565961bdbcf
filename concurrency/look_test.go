package concurrency_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// ranges counts the reads of queues over c: of a few requests, and of all.
func ranges(c *embedtest.Client) (few, all *embedtest.Injection) {
	count := func(few bool) *embedtest.Injection {
		return c.Inject(embedtest.Fault{Method: "Range", Times: -1, Do: embedtest.Pass, Match: func(_ string, msg any) bool {
			r, ok := msg.(*pb.RangeRequest)
			return ok && !strings.Contains(string(r.Key), "/session/") && len(r.RangeEnd) > 0 && few == (r.Limit > 0 && r.Limit < 120)
		}})
	}
	return count(true), count(false)
}

// A key without a lease is no request, and a heavy request is seen among few names.
func TestFewNamesDistinguishRequests(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	o, _ := f.Session(idle())
	sm, there := sem(t, s, "x", 2), sem(t, o, "x", 2)
	p := acquire(t, ctx, sm)
	slot := f.Keys("queue/light/")[0]
	require.NoError(t, p.Release(ctx))
	for _, stray := range []string{"-stray", strings.Replace(slot, "-0000", "-0007", 1), strings.Replace(slot, "-0000", "-0008", 1)} {
		if stray == "-stray" {
			stray = slot + stray
		}
		_, err := f.Client().Put(ctx, stray, "{}")
		require.NoError(t, err)
	}
	few, all := ranges(c)
	p, err := sm.TryAcquire(ctx)
	require.NoError(t, err, "what has no lease blocks no request")
	require.Equal(t, []int{1, 1}, []int{few.Hits(), all.Hits()}, "but the whole queue is read")
	require.NoError(t, p.Release(ctx))
	heavy := acquire(t, ctx, there, concurrency.Weight(2))
	_, err = sm.TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull)
	require.NoError(t, heavy.Release(ctx))
	_, err = f.Client().Delete(ctx, f.Root, clientv3.WithPrefix())
	require.NoError(t, err)
}

// A refusal costs one read of a few names, however many wait.
func TestRefusalReadsNames(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]int{"mutex": 0, "semaphore": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			o, _ := f.Session(idle())
			s, c := f.Session(idle())
			try := func() (*concurrency.Permit, error) { return mutex(t, s, "x").TryLock(ctx) }
			get := func() (*concurrency.Permit, error) { return mutex(t, o, "x").Lock(ctx) }
			held := 1
			if limit > 0 {
				held = limit
				sm, there := sem(t, s, "x", limit), sem(t, o, "x", limit)
				require.NoError(t, acquire(t, ctx, sm).Release(ctx)) // it knows the limit
				try = func() (*concurrency.Permit, error) { return sm.TryAcquire(ctx) }
				get = func() (*concurrency.Permit, error) { return there.Acquire(ctx) }
			}
			var permits []*concurrency.Permit
			for range held {
				p, err := get()
				require.NoError(t, err)
				permits = append(permits, p)
			}
			var waiters sync.WaitGroup
			for range 40 {
				waiters.Go(func() {
					if p, err := get(); assertNoError(t, err) {
						assertNoError(t, p.Release(ctx))
					}
				})
			}
			require.Eventually(t, func() bool { return len(f.Keys("queue/")) == held+40 }, soon, tick)
			names, values := ranges(c)
			_, err := try()
			var full *concurrency.FullError
			require.ErrorAs(t, err, &full)
			require.Equal(t, &concurrency.FullError{Name: "x", Limit: held, Used: held, Waiting: 40}, full)
			require.Equal(t, 1, names.Hits())
			require.Equal(t, 0, values.Hits())
			for _, p := range permits {
				require.NoError(t, p.Release(ctx))
			}
			waiters.Wait()
			p, err := try()
			require.NoError(t, err, "no permit is held")
			require.NoError(t, p.Release(ctx))
			require.Equal(t, []int{2, 0}, []int{names.Hits(), values.Hits()}, "names are enough for a grant, too")
		})
	}
}

// A limit that others have changed is noticed, and then names are enough again.
func TestRefusalAfterAnotherLimit(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	o, _ := f.Session(idle())
	sm, other := sem(t, s, "x", 2), sem(t, o, "x", 2)
	for range 2 {
		acquire(t, ctx, sm)
	}
	require.NoError(t, other.SetLimit(ctx, 3))
	names, values := ranges(c)
	third, err := sm.TryAcquire(ctx)
	require.NoError(t, err)
	require.Equal(t, []int{1, 1}, []int{names.Hits(), values.Hits()})
	_, err = sm.TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull)
	require.Equal(t, []int{2, 1}, []int{names.Hits(), values.Hits()})

	// After a limit was lowered the whole queue decides which hold.
	require.NoError(t, other.SetLimit(ctx, 1))
	_, err = sm.TryAcquire(ctx)
	var full *concurrency.FullError
	require.ErrorAs(t, err, &full)
	require.Equal(t, &concurrency.FullError{Name: "x", Limit: 1, Used: 3}, full)
	require.NoError(t, third.Release(ctx))
}

// A permit whose request was written first keeps the name of a try. Once a process has
// seen it for a while, or holds it itself, it refuses as any other does.
func TestTryThatHolds(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	o, _ := f.Session(idle())
	l, lc := f.Session(idle())
	sm, there, late := sem(t, s, "x", 1), sem(t, o, "x", 1), sem(t, l, "x", 1)
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
	require.NoError(t, acquire(t, ctx, late).Release(ctx))
	overtaken := overtake(ctx, c, there, optimism)
	p, err := sm.TryAcquire(ctx)
	require.NoError(t, err)
	require.Equal(t, optimism, overtaken.Hits())
	require.Len(t, f.Keys("-try"), 1)

	names, values := ranges(c)
	_, err = sm.TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull)
	require.Equal(t, []int{1, 0}, []int{names.Hits(), values.Hits()}, "it is this process's own")

	_, err = late.TryAcquire(ctx) // gives it the time to go
	require.ErrorIs(t, err, concurrency.ErrFull)
	time.Sleep(150 * time.Millisecond) // on a busy machine it may have seen it for less than its patience of 100 ms
	names, values = ranges(lc)
	for range 3 {
		_, err = late.TryAcquire(ctx)
		require.ErrorIs(t, err, concurrency.ErrFull)
	}
	require.Equal(t, []int{3, 0}, []int{names.Hits(), values.Hits()}, "it was seen for long")
	require.NoError(t, p.Release(ctx))
	p, err = late.TryAcquire(ctx)
	require.NoError(t, err)
	require.NoError(t, p.Release(ctx))
}

// With ample room a try does not ask again and again whether others have come.
func TestTryWithAmpleRoom(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	o, _ := f.Session(idle())
	sm, there := sem(t, s, "x", 100), sem(t, o, "x", 100)
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
	overtaken := overtake(ctx, c, there, optimism)
	defer overtaken.Remove()
	names, values := ranges(c)
	p, err := sm.TryAcquire(ctx)
	require.NoError(t, err)
	require.Equal(t, 2, overtaken.Hits(), "two Txns")
	require.Equal(t, []int{1, 0}, []int{names.Hits(), values.Hits()})
	require.NoError(t, p.Release(ctx))
}

// BenchmarkRefusedTry is a refused TryLock beside so many waiters.
func BenchmarkRefusedTry(b *testing.B) {
	for _, waiters := range []int{0, 100, 1000} {
		b.Run(fmt.Sprintf("waiters=%d", waiters), func(b *testing.B) {
			f := own(b, 1)
			ctx := ctxT(b)
			s, _ := f.Session(idle())
			holder := lock(b, s, "x")
			done := make(chan error, waiters)
			for range waiters {
				go func() {
					p, err := mutex(b, s, "x").Lock(ctx)
					if err == nil {
						err = p.Release(ctx)
					}
					done <- err
				}()
			}
			require.Eventually(b, func() bool { return len(f.Keys("queue/")) == 1+waiters }, time.Minute, tick)
			mu := mutex(b, s, "x")
			b.ReportAllocs()
			for b.Loop() {
				if _, err := mu.TryLock(ctx); err == nil {
					b.Fatal("it is held")
				}
			}
			b.StopTimer()
			require.NoError(b, holder.Release(ctx))
			for range waiters {
				require.NoError(b, <-done)
			}
		})
	}
}
