package virtual

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
)

// transport is a function as a RoundTripper.
type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// N10: two handlers take the permits of two limiters, in opposite orders. No limiter sees that they
// wait for each other, and the bound of each wait ends it.
func TestTrapN10Crosswise(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		const wait = 5 * time.Second
		o := limithttp.Options{Key: func(*http.Request) (string, bool) { return "acme", true }, Wait: wait}
		limiter := func(name string) *concurrency.KeyedLimiter {
			lim, err := concurrency.NewKeyedLimiter(on[0].session, name, 1, nil)
			require.NoError(t, err)
			return lim
		}
		// serve sends a request to a service under one limiter, whose handler sends one under the other.
		serve := func(at, next *concurrency.KeyedLimiter) <-chan error {
			send, err := limithttp.Transport(next, o, transport(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
			}))
			require.NoError(t, err)
			mw, err := limithttp.Middleware(at, o)
			require.NoError(t, err)
			answer := make(chan error, 1)
			handler := mw(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				time.Sleep(time.Second) // both have their first permits
				resp, err := send.RoundTrip(httptest.NewRequest(http.MethodGet, "http://next", nil).WithContext(r.Context()))
				if err == nil {
					_ = resp.Body.Close()
				}
				answer <- err
			}))
			go handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(within(t, time.Minute)))
			return answer
		}
		a, b := limiter("a"), limiter("b")
		begun := time.Now()
		one, other := serve(a, b), serve(b, a)
		err := errors.Join(<-one, <-other) // one at least: its permit may be free just in time for the other
		require.ErrorIs(t, err, concurrency.ErrFull)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(begun), 2*wait)
	})
}
