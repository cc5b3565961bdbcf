package virtual

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/internal/outage"
)

// each has a service ask with those options.
func each(opts ...concurrency.AcquireOption) func(*limithttp.Options) {
	return func(o *limithttp.Options) {
		o.Each = func(*http.Request) []concurrency.AcquireOption { return opts }
	}
}

// TestBadRequestsInAnOutage: a request that is refused as invalid without asking etcd is refused so in
// an outage, under each policy, and takes nothing from the share and adds nothing to it.
func TestBadRequestsInAnOutage(t *testing.T) {
	t.Parallel()
	for _, policy := range []limithttp.Outage{limithttp.Closed, limithttp.Open, limithttp.Share} {
		bubble(t, 2, func(t *testing.T, on []*desk) {
			option := map[string]concurrency.AcquireOption{
				"no weight": concurrency.Weight(0), "a negative weight": concurrency.Weight(-3), "nil": nil,
				"a long ID": concurrency.ID(strings.Repeat("i", 256)),
				"no time":   concurrency.MaxHold(0), "nobody": concurrency.TakeOver(),
			}
			s := services(on, policy, new(peak), func(o *limithttp.Options) {
				o.Each = func(r *http.Request) []concurrency.AcquireOption {
					if bad, is := option[r.Header.Get("Tenant")]; is {
						return []concurrency.AcquireOption{bad}
					}
					return nil
				}
			})[0]
			refused := func() {
				t.Helper()
				for tenant := range option {
					require.Equal(t, http.StatusInternalServerError, s.get(t.Context(), tenant), tenant)
				}
				require.Equal(t, http.StatusInternalServerError, s.get(t.Context(), strings.Repeat("k", 256)))
				require.Equal(t, http.StatusInternalServerError, s.get(t.Context(), ""))
				p, err := s.lim.Key("outer").Acquire(t.Context(), concurrency.Wait(time.Millisecond))
				if err == nil {
					require.Equal(t, http.StatusInternalServerError, s.get(p.Context(), "a"), "nested")
					require.NoError(t, p.Release(t.Context()))
				}
			}
			require.Equal(t, http.StatusOK, s.get(t.Context(), "a"))
			time.Sleep(time.Minute)
			refused()
			s.cutOff()
			refused()
			if policy == limithttp.Share {
				require.Equal(t, concurrency.Share{Limit: total, Sessions: 2, Size: total / 2}, s.share())
			}
		})
	}
}

// TestShareAsksAgain: work under a share whose call for a permit is refused asks again: it may
// continue for hours, and no other request of the process begins under a permit until it has one.
func TestShareAsksAgain(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		end := make(chan struct{})
		finish := sync.OnceFunc(func() { close(end) })
		defer finish()
		flow := concurrency.ID("flow")
		fleet := services(on, limithttp.Share, new(peak), nil)
		s := services(on, limithttp.Share, new(peak), each(flow))[0]
		s.slow = func(*http.Request) { <-end }
		require.Equal(t, http.StatusOK, s.get(t.Context(), "a"))
		time.Sleep(time.Minute)
		held, err := fleet[1].lim.Key("slow").Acquire(t.Context(), flow) // in the way of the work's permit
		require.NoError(t, err)
		s.cutOff()
		status := s.without("slow")
		s.client.Heal()
		time.Sleep(time.Minute)
		require.Equal(t, 1, s.share().Running)
		require.Equal(t, http.StatusServiceUnavailable, s.get(t.Context(), "a"))
		direct, err := s.lim.Key("a").TryAcquire(t.Context())
		require.NoError(t, err, "a call beside the middleware does not wait for the work")
		require.Equal(t, 1, s.share().Permits)
		require.NoError(t, direct.Release(t.Context()))
		require.NoError(t, held.Release(t.Context()))
		time.Sleep(10 * time.Second)
		require.Zero(t, s.share().Running, "the work has its permit")
		require.Equal(t, http.StatusOK, fleet[0].get(t.Context(), "a"))
		finish()
		require.Equal(t, http.StatusOK, <-status)
	})
}

// TestShareReportPanics: a panic of ReportError ends the request, and its place under the share.
func TestShareReportPanics(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		s := services(on, limithttp.Share, new(peak), func(o *limithttp.Options) {
			o.ReportError = func(*http.Request, error) { panic("planned") }
		})[0]
		other := services(on, limithttp.Share, new(peak), nil)[0]
		require.Equal(t, http.StatusOK, s.get(t.Context(), "a"))
		time.Sleep(time.Minute)
		other.cutOff()
		for range 3 {
			require.PanicsWithValue(t, "planned", func() { s.get(t.Context(), "a") })
		}
		require.Zero(t, s.share().Running)
		other.client.Heal()
		time.Sleep(time.Minute)
		require.Zero(t, s.share().Permits)
		require.Equal(t, http.StatusOK, other.get(t.Context(), "a"))
	})
}

// TestShareHealingIsKnown: an outage ends with etcd's first answer, though requests wait for the
// permits of work under the share.
func TestShareHealingIsKnown(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		end := make(chan struct{})
		finish := sync.OnceFunc(func() { close(end) })
		defer finish()
		fleet := services(on, limithttp.Share, new(peak), nil)
		a, b := fleet[0], fleet[1]
		a.slow = func(*http.Request) { <-end }
		require.Equal(t, http.StatusOK, a.get(t.Context(), "a"))
		time.Sleep(time.Minute)
		a.cutOff()
		status := a.without("slow")
		var held []*concurrency.Permit
		for range total {
			p, err := b.lim.Key("b").Acquire(t.Context())
			require.NoError(t, err)
			held = append(held, p)
		}
		a.client.Heal()
		time.Sleep(10 * time.Second)
		require.Equal(t, http.StatusServiceUnavailable, a.get(t.Context(), "a"))
		require.False(t, a.away.Load())
		finish()
		require.Equal(t, http.StatusOK, <-status)
		for _, p := range held {
			require.NoError(t, p.Release(t.Context()))
		}
	})
}

// TestOutageEndPanics: a panic of OnOutage, when the outage ends, leaves no permit behind, and ends no process whose
// session has found the end, since no request came.
func TestOutageEndPanics(t *testing.T) {
	t.Parallel()
	for name, idle := range map[string]time.Duration{"found by a request": 3 * time.Second, "found without one": time.Minute} {
		t.Run(name, func(t *testing.T) { outageEndPanics(t, idle) })
	}
}

func outageEndPanics(t *testing.T, idle time.Duration) {
	bubble(t, 2, func(t *testing.T, on []*desk) {
		s := services(on, limithttp.Closed, new(peak), nil)[0]
		rt, err := limithttp.Transport(s.lim, limithttp.Options{
			Key: func(*http.Request) (string, bool) { return "a", true },
			OnOutage: func(err error) {
				if err == nil {
					panic("planned")
				}
			},
		}, nil)
		require.NoError(t, err)
		send := func() error {
			r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://localhost", nil)
			require.NoError(t, err)
			_, err = rt.RoundTrip(r)
			return err
		}
		s.client.Refuse()
		time.Sleep(time.Minute)
		require.ErrorIs(t, send(), concurrency.ErrUnavailable)
		s.client.Heal()
		time.Sleep(idle)
		if idle < outage.Idle {
			require.PanicsWithValue(t, "planned", func() { _ = send() })
		} else {
			require.NotErrorIs(t, send(), concurrency.ErrUnavailable)
		}
		st, err := s.total.Status(t.Context())
		require.NoError(t, err)
		require.Empty(t, st.Holders)
	})
}

// TestOutageEndPanicsUnderAShare: the end of an outage is found by the call for the permit of work that runs under the
// share. A panic of OnOutage there ended the process (A299 in internal/proof/tested-failures.md).
func TestOutageEndPanicsUnderAShare(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		end, asked := make(chan struct{}), make(chan struct{}, 1)
		finish := sync.OnceFunc(func() { close(end) })
		defer finish()
		var s *service
		s = services(on, limithttp.Share, new(peak), func(o *limithttp.Options) {
			o.OnOutage = func(err error) {
				if s.away.Store(err != nil); err == nil {
					asked <- struct{}{}
					panic("planned")
				}
			}
		})[0]
		s.slow = func(*http.Request) { <-end }
		require.Equal(t, http.StatusOK, s.get(t.Context(), "a"))
		time.Sleep(time.Minute)
		s.cutOff()
		status := s.without("slow")
		s.client.Heal()
		<-asked
		time.Sleep(10 * time.Second)
		require.Zero(t, s.share().Running, "the work has its permit")
		finish()
		require.Equal(t, http.StatusOK, <-status)
		require.Equal(t, http.StatusOK, s.get(t.Context(), "a"))
	})
}

// TestShareOfThoseThatNeverMet: a session that joins while another cannot count it, but still trusts its
// lease, has no share: all shares together are within the limit.
func TestShareOfThoseThatNeverMet(t *testing.T) {
	t.Parallel()
	bubble(t, 3, func(t *testing.T, on []*desk) {
		fleet := services(on[:2], limithttp.Share, new(peak), nil)
		for _, s := range fleet {
			require.Equal(t, http.StatusOK, s.get(t.Context(), "a"))
		}
		time.Sleep(time.Minute)
		on[0].client.Refuse() // or it is paused
		fleet = append(fleet, services(on[2:], limithttp.Share, new(peak), nil)...)
		time.Sleep(11 * time.Second) // the first still trusts its lease
		for _, d := range on[1:] {
			d.client.Refuse()
		}
		time.Sleep(time.Minute)
		sum := 0
		for _, s := range fleet {
			sum += s.share().Size
		}
		require.LessOrEqual(t, sum, total)
	})
}
