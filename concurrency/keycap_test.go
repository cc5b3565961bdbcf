package concurrency_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
)

func capped(t testing.TB, s *concurrency.Session, name string, o concurrency.KeyedLimiterOptions) *concurrency.KeyedLimiter {
	t.Helper()
	l, err := concurrency.NewKeyedLimiter(s, name, 3, &o)
	require.NoError(t, err)
	return l
}

// A limiter has no more live keys than MaxKeys; those that it has stay usable, and nothing is written
// for another one (N16).
func TestTrapN16MaxKeys(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]concurrency.KeyedLimiterOptions{"keys": {MaxKeys: 3}, "and a total": {MaxKeys: 3, Total: 20}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			s, _ := f.Session(idle())
			other, _ := f.Session(idle())
			here, there := capped(t, s, "tenants", o), capped(t, other, "tenants", o)
			permits := []*concurrency.Permit{acquire(t, ctx, there.Key("a"))}
			for range 2 { // two requests of one key are one key
				permits = append(permits, acquire(t, ctx, here.Key("b")))
			}
			require.NoError(t, here.Key("c").SetLimit(ctx, 1, concurrency.CreateLimit()))
			refused := func(lim *concurrency.KeyedLimiter) {
				t.Helper()
				_, err := lim.Key("d").Acquire(ctx)
				require.ErrorIs(t, err, concurrency.ErrTooMany)
				require.EqualError(t, err, `acquire "tenants/d": the limiter has 3 live keys, as many as KeyedLimiterOptions.MaxKeys allows`)
				_, err = lim.Key("d").TryAcquire(ctx)
				require.ErrorIs(t, err, concurrency.ErrTooMany)
				require.Empty(t, f.Keys("/key/d/"))
			}
			for _, lim := range []*concurrency.KeyedLimiter{here, there} {
				for range 3 { // what an earlier count has left
					if p, err := lim.Key("b").TryAcquire(ctx); err == nil {
						require.NoError(t, p.Release(ctx))
					}
				}
				refused(lim)
				refused(capped(t, s, "tenants", o)) // another value counts by itself
			}
			permits = append(permits, acquire(t, ctx, there.Key("b")), acquire(t, ctx, here.Key("c")))
			for _, p := range permits {
				require.NoError(t, p.Release(ctx))
			}
			var p *concurrency.Permit
			require.Eventually(t, func() (ok bool) {
				var err error
				p, err = here.Key("d").Acquire(ctx)
				return err == nil
			}, soon, tick, "a count at most a second ago")
			require.NoError(t, p.Release(ctx))
			f.NoKeys("/queue/")
		})
	}
}

// Far below MaxKeys, one count serves many requests; at it, one count serves all of a second.
func TestTrapN16CountsSeldom(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	lim := capped(t, s, "tenants", concurrency.KeyedLimiterOptions{})
	require.NoError(t, acquire(t, ctx, lim.Key("a")).Release(ctx))
	c.ResetRequests()
	for i := range 100 {
		require.NoError(t, acquire(t, ctx, lim.Key(fmt.Sprint(i))).Release(ctx))
	}
	require.Zero(t, c.Requests()["Range"])

	lim = capped(t, s, "few", concurrency.KeyedLimiterOptions{MaxKeys: 40})
	for i := range 30 {
		p := acquire(t, ctx, lim.Key(fmt.Sprint(i)))
		defer func() { require.NoError(t, p.Release(ctx)) }()
	}
	c.ResetRequests()
	for i := 30; i < 40; i++ {
		p := acquire(t, ctx, lim.Key(fmt.Sprint(i)))
		defer func() { require.NoError(t, p.Release(ctx)) }()
	}
	_, err := lim.Key("more").Acquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrTooMany)
	require.LessOrEqual(t, c.Requests()["Range"], 4, "a count after 32 requests and after 40, names, and the key's own range")
}

// Of a burst of calls, each with a key of its own, one process admits no more than MaxKeys: requests that
// are on their way are live, too.
func TestTrapN16BurstOfKeys(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	lim := capped(t, s, "few", concurrency.KeyedLimiterOptions{MaxKeys: 20})
	calls := make([]<-chan answer, 400)
	for i := range calls {
		calls[i] = ask2(ctx, lim.Key(fmt.Sprint(i)))
	}
	var permits []*concurrency.Permit
	for _, call := range calls {
		if a := got(t, call, "it is granted or refused"); a.err != nil {
			require.ErrorIs(t, a.err, concurrency.ErrTooMany)
		} else {
			permits = append(permits, a.p)
		}
	}
	require.Len(t, permits, 20)
	for _, p := range permits {
		require.NoError(t, p.Release(ctx))
	}
	f.NoKeys("/queue/")
}

// Requests of one key, and its limit, are one live key (N16).
func TestTrapN16RequestsOfOneKey(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	lim := capped(t, s, "tenants", concurrency.KeyedLimiterOptions{MaxKeys: 2})
	require.NoError(t, lim.Key("a").SetLimit(ctx, 4, concurrency.CreateLimit()))
	var permits []*concurrency.Permit
	for range 4 {
		permits = append(permits, acquire(t, ctx, lim.Key("a")))
	}
	permits = append(permits, acquire(t, ctx, lim.Key("b"))) // four requests and a limit are before it
	_, err := lim.Key("c").Acquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrTooMany)
	for _, p := range permits {
		require.NoError(t, p.Release(ctx))
	}
	f.NoKeys("/queue/")
}

// A count lets a process use a part of the free keys only, so that the bound is exceeded by no more than
// that for each other process (N16).
func TestTrapN16Processes(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	var permits []*concurrency.Permit
	fill := func(lim *concurrency.KeyedLimiter, from string, most int) (n int) {
		t.Helper()
		for ; n < most; n++ {
			p, err := lim.Key(from + fmt.Sprint(n)).Acquire(ctx)
			if err != nil {
				require.ErrorIs(t, err, concurrency.ErrTooMany)
				break
			}
			permits = append(permits, p)
		}
		return n
	}
	o := concurrency.KeyedLimiterOptions{MaxKeys: 40}
	one, _ := f.Session(idle())
	other, _ := f.Session(idle())
	here, there := capped(t, one, "few", o), capped(t, other, "few", o)
	require.Equal(t, 1, fill(here, "first-", 1), "a count, with room for 15 more")
	require.Equal(t, 39, fill(there, "there-", 80), "all that are free")
	require.Equal(t, 15, fill(here, "here-", 80), "what the count has left")
	for _, p := range permits {
		require.NoError(t, p.Release(ctx))
	}
	f.NoKeys("/queue/")
}

// BenchmarkTrapN16Count is a count of a limiter's keys, beside so many live ones.
func BenchmarkTrapN16Count(b *testing.B) {
	for _, live := range []int{10_000, 50_000} {
		b.Run(fmt.Sprintf("live=%d", live), func(b *testing.B) {
			f := shared(b)
			ctx := context.Background()
			s, _ := f.Session(idle())
			f.crowded(ctx, totaled(b, s, "llm", 5, 20_000), live)
			of := f.Keys("/total/queue/")[0]
			of = of[:len(of)-len("light/0000000000000000-0000")]
			for b.Loop() {
				_, err := f.Client().Get(ctx, of, clientv3.WithPrefix(), clientv3.WithCountOnly())
				require.NoError(b, err)
			}
		})
	}
}
