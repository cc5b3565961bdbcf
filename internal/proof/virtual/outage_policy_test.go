package virtual

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// peak counts what runs at the same time, where it runs.
type peak struct{ now, most atomic.Int64 }

func (p *peak) enter() {
	n := p.now.Add(1)
	for m := p.most.Load(); n > m && !p.most.CompareAndSwap(m, n); m = p.most.Load() {
	}
}

func (p *peak) leave() { p.now.Add(-1) }

// since returns the peak and begins anew.
func (p *peak) since() int64 { return p.most.Swap(p.now.Load()) }

// service is a process that serves requests under a limit, with a policy for outages, and counts
// them.
type service struct {
	*desk
	lim     *concurrency.KeyedLimiter
	total   *concurrency.Semaphore
	slow    func(*http.Request) // the work of the tenant "slow"
	handler http.Handler
	own     peak // of those without a permit
	served  atomic.Int64
	refused atomic.Int64
	away    atomic.Bool  // by OnOutage
	early   atomic.Int64 // began under a permit beside work that had none
}

// total is the limit of all keys together. Three processes have a share of 3 each.
const total = 10

// services starts a service on each desk. Handlers work for half a second, in all.
func services(on []*desk, policy limithttp.Outage, all *peak, change func(*limithttp.Options)) (fleet []*service) {
	for _, d := range on {
		s := &service{desk: d}
		lim, err := concurrency.NewKeyedLimiter(d.session, "tenants", total, &concurrency.KeyedLimiterOptions{Total: total})
		require.NoError(d.t, err)
		s.lim, s.total = lim, lim.Total()
		o := limithttp.Options{
			Key:  func(r *http.Request) (string, bool) { return r.Header.Get("Tenant"), true },
			Wait: time.Second, Outage: policy, OnOutage: func(err error) { s.away.Store(err != nil) },
		}
		if change != nil {
			change(&o)
		}
		mw, err := limithttp.Middleware(lim, o)
		require.NoError(d.t, err)
		s.handler = mw(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			all.enter()
			defer all.leave()
			if p, permitted := limithttp.FromContext(r.Context()); !permitted {
				s.own.enter()
				defer s.own.leave()
			} else if share, ok := s.total.Share(); ok && share.Running > 0 && p.Err() == nil { // it may have been lost a moment ago
				s.early.Add(1)
			}
			if r.Header.Get("Tenant") == "slow" {
				s.slow(r)
				return
			}
			select {
			case <-time.After(500 * time.Millisecond):
			case <-r.Context().Done(): // the permit is lost: the work stops
			}
		}))
		fleet = append(fleet, s)
	}
	return fleet
}

func (s *service) get(ctx context.Context, tenant string) int {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx)
	r.Header.Set("Tenant", tenant)
	s.handler.ServeHTTP(w, r)
	return w.Code
}

// load sends requests of six clients until ctx ends.
func (s *service) load(ctx context.Context, all *sync.WaitGroup) {
	for i := range 6 {
		all.Go(func() {
			for ctx.Err() == nil {
				if s.get(context.Background(), string(rune('a'+i))) == http.StatusOK {
					s.served.Add(1)
					continue
				}
				s.refused.Add(1)
				time.Sleep(250 * time.Millisecond)
			}
		})
	}
}

// TestMinuteWithoutEtcd: etcd is away for 30 s, from one of three processes or from all, and
// comes back. Under each policy the handlers keep the bound that docs/limits.md states, by their own
// count: before, during, on healing, and after.
func TestMinuteWithoutEtcd(t *testing.T) {
	t.Parallel()
	type bounds struct{ during, settled, without, served int64 } // settled is once the lost permits' work has ended
	for name, c := range map[string]struct {
		policy limithttp.Outage
		cut    int
		want   bounds
	}{
		"closed, one": {limithttp.Closed, 1, bounds{during: total, settled: total}},
		"closed, all": {limithttp.Closed, 3, bounds{during: total}},
		"open, one":   {limithttp.Open, 1, bounds{during: total + 6, settled: total + 6, without: 6, served: 75}},
		"open, all":   {limithttp.Open, 3, bounds{during: 18, settled: 18, without: 6, served: 75}},
		"share, one":  {limithttp.Share, 1, bounds{during: 2 * total, settled: total + 3, without: 3, served: 50}},
		"share, all":  {limithttp.Share, 3, bounds{during: 2 * total, settled: 9, without: 3, served: 50}},
	} {
		for how, away := range aways {
			t.Run(name+", "+how, func(t *testing.T) {
				if testing.Short() && (how == "swallows" || name != "share, one") {
					t.Skip("twelve times a minute of load takes seconds of processor time; one is run")
				}
				t.Parallel()
				bubble(t, 3, func(t *testing.T, on []*desk) {
					var all peak
					fleet := services(on, c.policy, &all, nil)
					ctx, stop := context.WithCancel(context.Background())
					var load sync.WaitGroup
					defer load.Wait()
					defer stop()
					time.Sleep(20 * time.Second) // each knows how many they are
					for _, s := range fleet {
						s.load(ctx, &load)
					}
					time.Sleep(5 * time.Second)
					require.EqualValues(t, total, all.since())

					for _, s := range fleet[:c.cut] {
						away(s.client)
					}
					time.Sleep(ttl + 5*time.Second) // all leases are lost that are to be lost
					require.LessOrEqual(t, all.since(), c.want.during)
					for _, s := range fleet {
						s.served.Store(0)
					}
					time.Sleep(10 * time.Second)
					require.LessOrEqual(t, all.since(), c.want.settled)
					for i, s := range fleet {
						if i < c.cut {
							require.True(t, s.away.Load())
							require.Equal(t, c.want.without, s.own.most.Load())
							require.GreaterOrEqual(t, s.served.Load(), c.want.served)
							require.Equal(t, c.want.served == 0, s.served.Load() == 0)
						} else {
							require.False(t, s.away.Load())
							require.Zero(t, s.own.most.Load())
							require.Positive(t, s.served.Load())
						}
					}

					for _, s := range fleet[:c.cut] {
						s.client.Heal()
					}
					time.Sleep(10 * time.Second)
					require.LessOrEqual(t, all.since(), max(c.want.during, total))
					time.Sleep(15 * time.Second)
					require.EqualValues(t, total, all.since(), "the limit is kept again, and used")
					for _, s := range fleet {
						require.False(t, s.away.Load())
						require.Zero(t, s.own.now.Load())
						require.Zero(t, s.early.Load(), "work began under a permit while work under the share had none")
						share, used := s.total.Share()
						require.Equal(t, c.policy == limithttp.Share, used)
						if used {
							require.Equal(t, concurrency.Share{Limit: total, Sessions: 3, Size: 3, Permits: share.Permits}, share)
						}
					}
				})
			})
		}
	}
}

// without starts a request and waits until it runs under the share.
func (s *service) without(tenant string) <-chan int {
	s.t.Helper()
	before := s.share().Running
	status := make(chan int, 1)
	go func() { status <- s.get(context.Background(), tenant) }()
	for range 100 {
		if time.Sleep(20 * time.Millisecond); s.share().Running > before {
			return status
		}
	}
	require.FailNow(s.t, "the request does not run under the share")
	return nil
}

// cutOff cuts a process off, and returns when an outage is known and its lease is lost.
func (s *service) cutOff() {
	s.t.Helper()
	s.client.Refuse()
	time.Sleep(time.Minute)
	s.get(context.Background(), "first")
	require.True(s.t, s.away.Load())
}

// TestShareCountsWorkFromBefore: work that continues after its permits were lost uses its process's
// share until it ends.
func TestShareCountsWorkFromBefore(t *testing.T) {
	t.Parallel()
	bubble(t, 3, func(t *testing.T, on []*desk) {
		s := services(on, limithttp.Share, new(peak), nil)[0]
		time.Sleep(time.Minute)
		var stuck []*concurrency.Permit
		for range 2 {
			p, err := s.lim.Key("stuck").Acquire(t.Context())
			require.NoError(t, err)
			stuck = append(stuck, p)
		}
		s.cutOff()
		one := s.without("a")
		require.Equal(t, concurrency.Share{Limit: total, Sessions: 3, Size: 3, Running: 1, Permits: 2}, s.share())
		require.Equal(t, http.StatusServiceUnavailable, s.get(t.Context(), "b"), "the share is in use")
		require.Equal(t, http.StatusOK, <-one)
		for _, p := range stuck {
			require.ErrorIs(t, p.Release(t.Context()), concurrency.ErrLost)
		}
		require.Equal(t, concurrency.Share{Limit: total, Sessions: 3, Size: 3}, s.share())
	})
}

// TestShareOfANewProcess: a process that has not been counted by the others yet has no share, nor has
// one that does not know their number.
func TestShareOfANewProcess(t *testing.T) {
	t.Parallel()
	for _, age := range []time.Duration{0, time.Second, 9 * time.Second, 19 * time.Second, 31 * time.Second} {
		bubble(t, 2, func(t *testing.T, on []*desk) {
			s := services(on, limithttp.Share, new(peak), nil)[0]
			time.Sleep(time.Nanosecond)
			require.Equal(t, http.StatusOK, s.get(t.Context(), "a"))
			time.Sleep(age)
			s.cutOff()
			want := http.StatusServiceUnavailable
			if age > 30*time.Second {
				want = http.StatusOK
			}
			require.Equal(t, want, s.get(t.Context(), "a"), "%v: %+v", age, s.share())
		})
	}
}

// TestShareAfterHealing: work that began under a share and continues after healing gets a permit,
// before requests that come then, and loses it as any permit. Requests wait for that, within Wait.
func TestShareAfterHealing(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		long := make(chan struct{})
		finish := sync.OnceFunc(func() { close(long) })
		defer finish()
		permitted := make(chan bool, 10)
		fleet := services(on, limithttp.Share, new(peak), nil)
		a, b := fleet[0], fleet[1]
		a.slow = func(r *http.Request) {
			<-long
			_, ok := limithttp.FromContext(r.Context())
			permitted <- ok
			<-r.Context().Done()
			permitted <- errors.Is(context.Cause(r.Context()), concurrency.ErrEvicted)
		}
		require.Equal(t, http.StatusOK, a.get(t.Context(), "a"))
		time.Sleep(time.Minute)
		a.cutOff()
		status := a.without("slow")

		// The other process has all permits, so the work cannot have one yet.
		var held []*concurrency.Permit
		for range total {
			p, err := b.lim.Key("b").Acquire(t.Context())
			require.NoError(t, err)
			held = append(held, p)
		}
		a.client.Heal()
		time.Sleep(10 * time.Second)
		require.EqualValues(t, 1, a.share().Running)
		begun := time.Now()
		next := make(chan int, 1)
		go func() { next <- a.get(t.Context(), "a") }()
		time.Sleep(time.Second / 2) // while it waits: afterwards its request would be removed
		st, err := a.total.Status(t.Context())
		require.NoError(t, err)
		require.Len(t, st.Waiters, 1, "only the work waits")
		require.Equal(t, http.StatusServiceUnavailable, <-next)
		require.Equal(t, time.Second, time.Since(begun), "it waits for its Wait, and asks nothing")

		require.NoError(t, held[0].Release(t.Context()))
		time.Sleep(time.Second)
		require.Zero(t, a.share().Running)
		require.Equal(t, 1, a.share().Permits)
		finish()
		require.True(t, <-permitted, "the handler sees its permit")
		require.NoError(t, held[1].Release(t.Context()))
		require.Equal(t, http.StatusOK, a.get(t.Context(), "a"))

		st, err = a.lim.Key("slow").Status(t.Context())
		require.NoError(t, err)
		require.NoError(t, a.lim.Key("slow").EvictToken(t.Context(), st.Holders[0].Token, "test"))
		require.True(t, <-permitted, "the context ends with the permit")
		require.Equal(t, http.StatusInternalServerError, <-status, "it has lost its permit, and gave no response")
		require.Zero(t, a.share().Permits)
		for _, p := range held[2:] {
			require.NoError(t, p.Release(t.Context()))
		}
	})
}

// TestShareGrantAfterTheOutage: a request that has asked before the outage, and is granted its permit
// after it, does not begin while work under the share has no permit.
func TestShareGrantAfterTheOutage(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		end := make(chan struct{})
		finish := sync.OnceFunc(func() { close(end) })
		defer finish()
		flow := concurrency.ID("flow")
		other := services(on[1:], limithttp.Share, new(peak), nil)[0]
		held, err := other.lim.Key("slow").Acquire(t.Context(), flow) // in the way of the work's permit
		require.NoError(t, err)
		s := services(on, limithttp.Share, new(peak), func(o *limithttp.Options) {
			o.Each = func(*http.Request) []concurrency.AcquireOption { return []concurrency.AcquireOption{flow} }
		})[0]
		s.slow = func(*http.Request) { <-end }
		patient := services(on[:1], limithttp.Share, new(peak), func(o *limithttp.Options) { o.Wait, o.Patience = time.Hour, time.Hour })[0]
		require.Equal(t, http.StatusOK, s.get(t.Context(), "a"))
		time.Sleep(time.Minute)
		s.client.Refuse()
		status := make(chan int, 1)
		go func() { status <- patient.get(context.Background(), "patient") }()
		s.cutOff()
		running := s.without("slow")
		s.client.Heal()
		time.Sleep(10 * time.Second)
		st, err := other.lim.Key("patient").Status(t.Context())
		require.NoError(t, err)
		require.Empty(t, st.Holders, "it waits without a permit")
		require.Empty(t, status)
		require.Equal(t, concurrency.Share{Limit: total, Sessions: s.share().Sessions, Size: s.share().Size, Running: 1}, s.share())
		finish()
		require.Equal(t, http.StatusOK, <-running)
		require.Equal(t, http.StatusOK, <-status)
		require.Zero(t, patient.early.Load())
		require.NoError(t, held.Release(t.Context()))
	})
}

// TestShareWeighs: the weight of a request counts, and the limit of Single is divided likewise.
func TestShareWeighs(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		sem, err := concurrency.NewSemaphore(on[0].session, "sem", total, nil)
		require.NoError(t, err)
		_, used := sem.Share()
		require.False(t, used)
		mw, err := limithttp.Middleware(concurrency.Single(sem), limithttp.Options{
			Key: func(*http.Request) (string, bool) { return "any", true }, Outage: limithttp.Share,
			Each: func(r *http.Request) []concurrency.AcquireOption {
				return []concurrency.AcquireOption{concurrency.Weight(len(r.URL.Path) - 1)}
			},
		})
		require.NoError(t, err)
		get := func(path string, h http.HandlerFunc) int {
			w := httptest.NewRecorder()
			mw(h).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			return w.Code
		}
		ok := func(http.ResponseWriter, *http.Request) {}
		require.Equal(t, http.StatusOK, get("/123", ok))
		time.Sleep(time.Minute)
		on[0].client.Refuse()
		time.Sleep(time.Minute)
		share, used := sem.Share()
		require.True(t, used)
		require.Equal(t, concurrency.Share{Limit: total, Sessions: 1, Size: total}, share)
		require.Equal(t, http.StatusOK, get("/1234567", func(_ http.ResponseWriter, r *http.Request) {
			share, _ := sem.Share()
			require.Equal(t, 7, share.Running)
			require.Equal(t, http.StatusServiceUnavailable, get("/1234", ok))
			require.Equal(t, http.StatusOK, get("/123", ok))

			w := httptest.NewRecorder()
			mw(http.HandlerFunc(ok)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/1", nil).WithContext(r.Context()))
			require.Equal(t, http.StatusInternalServerError, w.Code, "a request that runs under the share asks again")
		}))
	})
}

func (s *service) share() concurrency.Share {
	share, ok := s.total.Share()
	require.True(s.t, ok)
	return share
}

// TestShareIsKeptWarm: a session that shares a limit costs etcd one read every five seconds, and one key
// on its lease, which it writes again if it is deleted.
func TestShareIsKeptWarm(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		fleet := services(on, limithttp.Share, new(peak), nil)
		services(on[:1], limithttp.Share, new(peak), nil) // a second middleware of the same limiter
		time.Sleep(time.Minute)
		var txns atomic.Int64
		on[0].client.Inject(func(m etcdfake.Message) etcdfake.Fault {
			if m.Method == "Txn" {
				txns.Add(1)
			}
			return etcdfake.Fault{}
		})
		before := on[0].server.Revision()
		time.Sleep(time.Minute)
		require.InDelta(t, 12, txns.Load(), 1, "the first or the last second may have one more")
		require.Equal(t, before, on[0].server.Revision(), "they write nothing")
		members := func() (keys []string) {
			for _, k := range on[0].server.Keys(prefix) {
				if strings.Contains(k, "/sharing/") {
					keys = append(keys, k)
				}
			}
			return keys
		}
		require.Len(t, members(), 2)
		_, err := on[0].client.Delete(t.Context(), members()[0])
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.Len(t, members(), 2)
		require.Equal(t, 2, fleet[0].share().Sessions)
		require.Equal(t, 2, fleet[1].share().Sessions)
		on[1].close(time.Second)
		require.Len(t, members(), 1)
		time.Sleep(10 * time.Second)
		require.Equal(t, 1, fleet[0].share().Sessions)
	})
}
