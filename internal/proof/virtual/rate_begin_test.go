package virtual

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/internal/proof/check"
)

// besides are the limiters beside which requests take tokens of a rate: one of the process, and none.
func (d *desk) besides(limit int) map[string]concurrency.Limiter {
	d.t.Helper()
	lim, err := concurrency.NewKeyedLimiter(d.session, "tenants", limit, nil)
	require.NoError(d.t, err)
	return map[string]concurrency.Limiter{"alone": nil, "with a limiter": lim}
}

// acme is the key of all requests.
func acme(*http.Request) (string, bool) { return "acme", true }

// TestRateOfBeginnings: by a count outside of etcd, two processes under load begin no more requests than the
// rate and the burst allow, in any window, and use the rate. None of the requests waits for a token.
func TestRateOfBeginnings(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		const perSecond, burst, lasts = 40, 10, 10 * time.Second
		var k takers
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var load sync.WaitGroup
		begun := map[string]*takers{}
		for process, d := range on {
			for name, lim := range d.besides(8) {
				if begun[name] == nil {
					begun[name] = new(takers)
				}
				mw, err := limithttp.Middleware(lim, limithttp.Options{Key: acme, Rate: d.rate(perSecond, burst)})
				require.NoError(t, err)
				h := mw(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					k.took(process)
					begun[name].took(process)
				}))
				for range 2 {
					load.Go(func() {
						for ctx.Err() == nil {
							h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
							time.Sleep(19 * time.Millisecond) // twenty times the rate is asked for
						}
					})
				}
			}
		}
		time.Sleep(lasts)
		stop()
		load.Wait()
		require.NoError(t, check.Rate(k.spans, perSecond, burst))
		require.Greater(t, len(k.spans), int(perSecond*lasts.Seconds())*9/10)
		for name, of := range begun {
			for process := range on {
				require.Positive(t, of.between(process, time.Time{}, time.Now()), name)
			}
		}
	})
}

// lateContext lets some time pass while a deadline below it is set.
type lateContext struct {
	context.Context
	pass time.Duration
}

func (c lateContext) Deadline() (time.Time, bool) {
	time.Sleep(c.pass)
	return time.Time{}, false
}

// TestRateWaitEndsAtItsBegin: if Wait ends at the moment at which a request would begin to wait for a
// token, the request has exceeded the rate, as any other without a token.
func TestRateWaitEndsAtItsBegin(t *testing.T) {
	t.Parallel()
	for _, late := range []time.Duration{-1, 0, time.Millisecond} {
		bubble(t, 1, func(t *testing.T, on []*desk) {
			const wait = time.Second
			var reported []error
			scarce := on[0].rate(1e-4, 1)
			require.NoError(t, scarce.Wait(t.Context()), "all that there is")
			mw, err := limithttp.Middleware(nil, limithttp.Options{
				Rate: scarce, Wait: wait,
				ReportError: func(_ *http.Request, err error) { reported = append(reported, err) },
			})
			require.NoError(t, err)
			h := mw(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it has no token") }))
			r := httptest.NewRequestWithContext(lateContext{t.Context(), wait + late}, http.MethodGet, "/", nil)
			begun, answer := time.Now(), httptest.NewRecorder()
			h.ServeHTTP(answer, r)
			require.GreaterOrEqual(t, time.Since(begun), wait-1, "a nanosecond before, it cannot have a token in time")
			require.Equal(t, http.StatusServiceUnavailable, answer.Code)
			require.Contains(t, answer.Body.String(), `"`+string(limithttp.CodeRateExceeded)+`"`)
			require.Empty(t, reported)
		})
	}
}
