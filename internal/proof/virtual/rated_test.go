package virtual

import (
	"context"
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
	"github.com/etcdkit/etcdkit/internal/proof/check"
)

// rated is a process that serves requests under a rate of 20 per second with a burst of 10, and
// counts those that began with a token and those that passed without.
type rated struct {
	*desk
	handler         http.Handler
	tokens, without atomic.Int64
	away            atomic.Bool // by OnOutage
}

// passedKey has the *bool of a request that is set when it passes in an outage.
type passedKey struct{}

// newRated starts a process whose requests take permits of a limiter of 3 as well if beside.
func newRated(d *desk, process int, k *takers, policy limithttp.Outage, beside bool) *rated {
	s := &rated{desk: d}
	var lim concurrency.Limiter
	if beside {
		keyed, err := concurrency.NewKeyedLimiter(d.session, "tenants", 3, nil)
		require.NoError(d.t, err)
		lim = keyed
	}
	mw, err := limithttp.Middleware(lim, limithttp.Options{
		Key:  func(*http.Request) (string, bool) { return "acme", true },
		Rate: d.rate(20, 10), Wait: time.Second, Outage: policy,
		OnOutage: func(err error) { s.away.Store(err != nil) },
		ReportError: func(r *http.Request, err error) {
			if strings.Contains(err.Error(), "passed without") {
				*r.Context().Value(passedKey{}).(*bool) = true
			}
		},
	})
	require.NoError(d.t, err)
	s.handler = mw(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if *r.Context().Value(passedKey{}).(*bool) {
			s.without.Add(1)
		} else {
			s.tokens.Add(1)
			k.took(process)
		}
		time.Sleep(50 * time.Millisecond)
	}))
	return s
}

func (s *rated) get(ctx context.Context) int {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
	s.handler.ServeHTTP(w, r.WithContext(context.WithValue(ctx, passedKey{}, new(bool))))
	return w.Code
}

// counts returns what has begun since the last call.
func (s *rated) counts() (tokens, without int64) { return s.tokens.Swap(0), s.without.Swap(0) }

// TestRateInAMinuteWithoutEtcd: etcd is away for 35 s, from one of three processes or from all,
// and comes back. What begins with a token keeps the rate in every window, whatever the policy. A
// process that is cut off serves until its lease ends; then Closed refuses, and Open passes and
// reports each request.
func TestRateInAMinuteWithoutEtcd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		open, beside bool
		cut          int
	}{
		"closed, one": {cut: 1}, "closed, all": {cut: 3}, "closed, a limiter, one": {beside: true, cut: 1},
		"open, one": {open: true, cut: 1}, "open, all": {open: true, cut: 3}, "open, a limiter, all": {open: true, beside: true, cut: 3},
	} {
		for how, away := range aways {
			t.Run(name+", "+how, func(t *testing.T) {
				if testing.Short() && (how == "swallows" || c.open != c.beside) {
					t.Skip("twelve times a minute of load takes seconds of processor time; three are run")
				}
				t.Parallel()
				bubble(t, 3, func(t *testing.T, on []*desk) {
					var k takers
					var fleet []*rated
					policy := limithttp.Closed
					if c.open {
						policy = limithttp.Open
					}
					ctx, stop := context.WithCancel(context.Background())
					var load sync.WaitGroup
					defer load.Wait()
					defer stop()
					for i, d := range on {
						s := newRated(d, i, &k, policy, c.beside)
						fleet = append(fleet, s)
						for range 3 {
							load.Go(func() {
								for ctx.Err() == nil {
									if s.get(context.Background()) != http.StatusOK {
										time.Sleep(100 * time.Millisecond)
									}
								}
							})
						}
					}
					time.Sleep(10 * time.Second)
					for _, s := range fleet {
						tokens, without := s.counts()
						require.Positive(t, tokens)
						require.Zero(t, without)
					}
					for _, s := range fleet[:c.cut] {
						away(s.client)
					}
					time.Sleep(ttl + 10*time.Second) // leases are lost, and outages recognized
					for _, s := range fleet {
						s.counts()
					}
					time.Sleep(10 * time.Second)
					for i, s := range fleet {
						tokens, without := s.counts()
						require.Equal(t, i >= c.cut, tokens > 0, "with tokens")
						require.Equal(t, i < c.cut && c.open, without > 275, "without, and at once")
						require.Equal(t, i < c.cut, s.away.Load())
					}
					for _, s := range fleet[:c.cut] {
						s.client.Heal()
					}
					time.Sleep(15 * time.Second)
					for _, s := range fleet {
						s.counts()
					}
					time.Sleep(5 * time.Second)
					for _, s := range fleet {
						tokens, without := s.counts()
						require.Positive(t, tokens)
						require.Zero(t, without)
						require.False(t, s.away.Load())
					}
					require.NoError(t, check.Rate(k.from(time.Time{}), 20, 10))
				})
			})
		}
	}
}

// TestRateSharesTheWait: a request that has waited for its permit waits for its token for the rest of
// Wait only, and not at all if that is too short.
func TestRateSharesTheWait(t *testing.T) {
	t.Parallel()
	for perSecond, served := range map[float64]bool{1 / 3.6: true, 1 / 4.4: false} {
		bubble(t, 1, func(t *testing.T, on []*desk) {
			lim, err := concurrency.NewKeyedLimiter(on[0].session, "tenants", 1, nil)
			require.NoError(t, err)
			l := on[0].rate(perSecond, 1)
			require.NoError(t, l.Wait(t.Context()))
			mw, err := limithttp.Middleware(lim, limithttp.Options{Key: acme, Rate: l, Wait: 4 * time.Second})
			require.NoError(t, err)
			p, err := lim.Key("acme").Acquire(t.Context())
			require.NoError(t, err)
			time.AfterFunc(3*time.Second, func() { _ = p.Release(context.Background()) })
			w, begun := httptest.NewRecorder(), time.Now()
			mw(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			if served {
				require.Equal(t, http.StatusOK, w.Code)
				require.InDelta(t, 3.6, time.Since(begun).Seconds(), 0.1)
			} else {
				require.Equal(t, http.StatusServiceUnavailable, w.Code)
				require.Contains(t, w.Body.String(), limithttp.CodeRateExceeded)
				require.InDelta(t, 3, time.Since(begun).Seconds(), 0.1)
			}
			st, err := lim.Key("acme").Status(t.Context())
			require.NoError(t, err)
			require.Empty(t, st.Holders)
		})
	}
}
