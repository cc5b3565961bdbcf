package limithttp_test

import (
	"context"
	"flag"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// away is how long etcd is away in TestAway: make outage makes it a minute.
var away = flag.Duration("away", 3*time.Second, "how long etcd is away from a process that has lost its lease")

// gauge counts what runs at the same time, and its peak.
type gauge struct{ now, peak atomic.Int64 }

func (g *gauge) run(f func()) {
	n := g.now.Add(1)
	defer g.now.Add(-1)
	for p := g.peak.Load(); n > p && !g.peak.CompareAndSwap(p, n); p = g.peak.Load() {
	}
	f()
}

// peakSince returns the peak and begins anew.
func (g *gauge) peakSince() int64 { return g.peak.Swap(g.now.Load()) }

// withTotal is on for a limiter with a total.
func withTotal(f testkit.Fixture, total int) instance {
	f.T.Helper()
	s, c := f.Session(testkit.Quick())
	lim, err := concurrency.NewKeyedLimiter(s, "tenants", total, &concurrency.KeyedLimiterOptions{Total: total})
	require.NoError(f.T, err)
	return instance{lim, f, s, c}
}

// shared waits until a process knows its share.
func (in instance) shared(sessions int) {
	in.f.T.Helper()
	require.Eventually(in.f.T, func() bool {
		share, ok := in.Total().Share()
		return ok && share.Sessions == sessions
	}, soon, 50*time.Millisecond, "the sessions are counted")
}

// TestAway: one of three processes, or all, cannot reach etcd for a while, under each policy, on a real
// etcd. The handlers count themselves. The figures are in docs/limits.md.
func TestAway(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for leases to be lost")
	}
	t.Parallel()
	const total = 7 // a share is 2
	for name, c := range map[string]struct {
		policy            limithttp.Outage
		cut               int
		bound, alone, own int64 // of all, of all once the others' permits are lost, of the processes that are cut off without a permit
	}{
		"closed, one": {limithttp.Closed, 1, total, total, 0},
		"closed, all": {limithttp.Closed, 3, total, 0, 0},
		"open, one":   {limithttp.Open, 1, total + 4, total + 4, 4},
		"open, all":   {limithttp.Open, 3, 12, 12, 12},
		"share, one":  {limithttp.Share, 1, 2 * total, total + 2, 2},
		"share, all":  {limithttp.Share, 3, 2 * total, 6, 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := testkit.Shared(t)
			var all, without gauge
			var permitted [3]gauge // by process
			var refused atomic.Int64
			var out [3]atomic.Bool // by process: an outage has begun, and has not ended
			var fleet []instance
			var servers []server
			for i := range permitted {
				in := withTotal(f, total)
				servers = append(servers, in.serve(options(wait(time.Second), func(o *limithttp.Options) {
					o.Outage, o.Patience = c.policy, time.Second
					o.OnOutage = func(err error) { out[i].Store(err != nil) }
				}), func(_ http.ResponseWriter, r *http.Request) {
					all.run(func() {
						work := func() {
							select {
							case <-time.After(150 * time.Millisecond):
							case <-r.Context().Done():
							}
						}
						if _, permitted := limithttp.FromContext(r.Context()); !permitted {
							without.run(work)
							return
						}
						permitted[i].run(work)
					})
				}))
				fleet = append(fleet, in)
			}
			whole := ctxT(t)
			ctx, stop := context.WithCancel(whole)
			var load sync.WaitGroup
			defer load.Wait()
			defer stop()
			var served [3]atomic.Int64
			for i, s := range servers {
				for range 4 {
					load.Go(func() {
						for ctx.Err() == nil {
							resp, err := s.Client().Do(s.request(whole, http.MethodGet, "acme", nil))
							if err != nil {
								t.Error(err)
								return
							}
							resp.Body.Close()
							if resp.StatusCode == http.StatusOK {
								served[i].Add(1)
								continue
							}
							refused.Add(1)
							time.Sleep(100 * time.Millisecond)
						}
					})
				}
			}
			serves := func(i int) {
				n := served[i].Load()
				require.Eventually(t, func() bool { return served[i].Load() > n+5 }, soon, 10*time.Millisecond)
			}
			for i, in := range fleet {
				serves(i)
				if c.policy == limithttp.Share {
					in.shared(3)
				}
			}
			require.LessOrEqual(t, all.peakSince(), int64(total))
			for _, in := range fleet[:c.cut] {
				in.client.Cut()
			}
			for i := range c.cut {
				require.Eventually(t, out[i].Load, soon, 5*time.Millisecond, "the outage begins")
			}
			for _, in := range fleet[:c.cut] {
				require.Eventually(t, func() bool { return in.sess.Lease() == 0 }, soon, 10*time.Millisecond, "the lease is lost")
			}
			for i := range c.cut {
				require.Eventually(t, func() bool { return permitted[i].now.Load() == 0 }, soon, 5*time.Millisecond, "the work under lost permits has stopped")
			}
			first := all.peakSince()
			require.LessOrEqual(t, first, c.bound)
			begun := time.Now()
			for i := range fleet {
				if i >= c.cut || c.policy != limithttp.Closed {
					serves(i)
				}
			}
			time.Sleep(*away - time.Since(begun))
			during, own := all.peakSince(), without.peakSince()
			require.LessOrEqual(t, during, c.alone)
			require.LessOrEqual(t, own, c.own)
			require.Equal(t, c.own == 0, own == 0)
			for _, in := range fleet[:c.cut] {
				in.client.Heal()
			}
			require.Eventually(t, func() bool {
				return !out[0].Load() && !out[1].Load() && !out[2].Load() && without.now.Load() == 0
			}, soon, 5*time.Millisecond, "the outage ends")
			healing := all.peakSince()
			require.LessOrEqual(t, healing, c.bound)
			var after int64
			for again := true; again; again = without.peakSince() > 0 { // on a busy machine etcd may take longer than Patience once more
				for i := range fleet {
					serves(i)
				}
				require.Eventually(t, func() bool { return all.now.Load() <= total && without.now.Load() == 0 }, soon, 5*time.Millisecond)
				all.peakSince()
				without.peakSince()
				for i := range fleet {
					serves(i)
				}
				after = all.peakSince()
				require.NoError(t, whole.Err())
			}
			require.LessOrEqual(t, after, int64(total), "the limit is that of all again")
			t.Logf("limit %d, peaks: until the leases were lost %d, away for %v %d (%d without a permit), on healing %d, after it %d; %d refused",
				total, first, time.Since(begun).Round(time.Second), during, own, healing, after, refused.Load())
		})
	}
}

// TestOpenWithinAnotherLimit: a request that runs without a permit of the inner limiter has none in its
// context, though it has one of the outer.
func TestOpenWithinAnotherLimit(t *testing.T) {
	t.Parallel()
	outer := newInstance(t, 1)
	inner := on(outer.f, &concurrency.SessionOptions{TTL: 300 * time.Second}, 1) // on a client of its own
	open := middleware(t, inner, options(func(o *limithttp.Options) {
		o.Wait, o.Outage, o.Patience = 500*time.Millisecond, limithttp.Open, time.Millisecond
	}))
	var permitted atomic.Bool
	s := outer.serve(options(), open(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, has := limithttp.FromContext(r.Context())
		permitted.Store(has)
	})).ServeHTTP)
	inner.client.Cut()
	permitted.Store(true)
	require.Equal(t, http.StatusOK, s.get("acme").StatusCode)
	require.False(t, permitted.Load())
	inner.client.Heal()
}

// TestShareNeedsATotal: a limiter without a limit of all keys cannot be divided.
func TestShareNeedsATotal(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	share := options(func(o *limithttp.Options) { o.Outage = limithttp.Share })
	for want, lim := range map[string]concurrency.Limiter{
		"KeyedLimiterOptions.Total":           in.KeyedLimiter,
		"limit of all keys together: a Keyed": keyOnly{in.KeyedLimiter},
		"or Single of a NewSemaphore":         concurrency.Single(in.KeyedLimiter.Key("acme")),
		"needs a limit of all keys together":  ownLimiter{},
	} {
		_, err := limithttp.Middleware(lim, share)
		require.ErrorIs(t, err, concurrency.ErrInvalid)
		require.ErrorContains(t, err, "limithttp: new middleware: Options.Outage: ")
		require.ErrorContains(t, err, want)
	}
	require.Empty(t, in.f.Keys("sharing"))
}

type keyOnly struct{ lim *concurrency.KeyedLimiter }

func (k keyOnly) Key(key string) *concurrency.Semaphore { return k.lim.Key(key) }
