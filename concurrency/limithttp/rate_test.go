package limithttp_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// Of the first rate each request gets a token soon; of the second, once it is spent, none does within a test, but one
// comes within a Wait of a day.
var (
	ample  = concurrency.Rate{PerSecond: 1000, Burst: 100}
	scarce = concurrency.Rate{PerSecond: 1e-4, Burst: 1}
)

// rate is a rate limiter on the session of an instance.
func (in instance) rate(r concurrency.Rate) *concurrency.RateLimiter {
	in.f.T.Helper()
	l, err := concurrency.NewRateLimiter(in.sess, "begin", r, nil)
	require.NoError(in.f.T, err)
	if r == scarce {
		in.spend(l)
	}
	return l
}

// scarce returns another rate limiter, which is spent.
func (in instance) scarce() *concurrency.RateLimiter {
	in.f.T.Helper()
	l, err := concurrency.NewRateLimiter(in.sess, "scarce", scarce, nil)
	require.NoError(in.f.T, err)
	in.spend(l)
	return l
}

// spend takes the token that a scarce rate has, if it has one.
func (in instance) spend(l *concurrency.RateLimiter) {
	ctx, cancel := context.WithTimeout(ctxT(in.f.T), soon)
	defer cancel()
	_ = l.Wait(ctx)
}

func rated(l *concurrency.RateLimiter) func(*limithttp.Options) {
	return func(o *limithttp.Options) { o.Rate = l }
}

// limiters are those beside which a rate is tested: that of an instance, and none.
func (in instance) limiters() map[string]concurrency.Limiter {
	return map[string]concurrency.Limiter{"alone": nil, "with a limiter": in}
}

// TestRate: a request that gets a token runs, under a permit if there is a limiter.
func TestRate(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	for name, lim := range in.limiters() {
		s := in.serveBy(lim, options(rated(in.rate(ample)), wait(soon)), func(w http.ResponseWriter, r *http.Request) {
			_, permitted := limithttp.FromContext(r.Context())
			_, _ = io.WriteString(w, strconv.FormatBool(permitted))
		})
		for range 20 {
			re := s.get("acme")
			require.Equal(t, http.StatusOK, re.StatusCode, name)
			require.Equal(t, strconv.FormatBool(lim != nil), re.body, name)
		}
		require.Equal(t, http.StatusOK, s.get("").StatusCode, "it is not limited")
	}
	in.f.NoKeys("/key/")
	require.NotEmpty(t, in.f.Keys("/rate/begin/"))
}

// TestRateExceeded: a request without a token is answered with 503 and its handler does not run, at
// once or after Wait. Requests that are not limited take no token.
func TestRateExceeded(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	for name, lim := range in.limiters() {
		for _, w := range []time.Duration{0, 50 * time.Millisecond} {
			if lim != nil && w > 0 {
				continue // a slow etcd may need all of it: see TestRateUnderPermit
			}
			reported, on := make(reports, 10), new(atomic.Bool)
			on.Store(true)
			s := in.serveBy(lim, options(rated(in.rate(scarce)), wait(w), reported.option, func(o *limithttp.Options) { o.Enabled = on.Load }), ok)
			for range 3 {
				re := s.get("acme")
				require.Equal(t, http.StatusServiceUnavailable, re.StatusCode, name)
				p := re.problem(t)
				require.Equal(t, limithttp.CodeRateExceeded, p.Code, name)
				require.Equal(t, []string{"concurrency-rate"}, p.ViolatedPolicies)
				require.NotEmpty(t, re.Header.Get("Retry-After"), name)
				require.Empty(t, re.Header.Get("RateLimit-Policy"), "the size of the rate is not published")
			}
			require.Zero(t, s.calls.Load(), name)
			require.Empty(t, reported)
			require.Equal(t, http.StatusOK, s.get("").StatusCode, "it is not limited")
			on.Store(false)
			require.Equal(t, http.StatusOK, s.get("acme").StatusCode, "nothing is limited")
		}
	}
	in.f.NoKeys("/key/")
}

// TestRateAloneNeedsNoKey: without a limiter the key's text has no meaning, and without Options.Key
// all requests are limited.
func TestRateAloneNeedsNoKey(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	s := in.serveBy(nil, options(rated(in.rate(ample)), wait(soon)), ok)
	require.Equal(t, http.StatusOK, s.get("empty").StatusCode)
	s = in.serveBy(in, options(rated(in.rate(ample)), wait(soon)), ok)
	require.Equal(t, http.StatusInternalServerError, s.get("empty").StatusCode)
	s = in.serveBy(nil, limithttp.Options{Rate: in.rate(ample), Wait: soon}, ok)
	require.Equal(t, http.StatusOK, s.get("").StatusCode)
	s = in.serveBy(nil, limithttp.Options{Rate: in.scarce()}, ok)
	require.Equal(t, http.StatusServiceUnavailable, s.get("").StatusCode)
}

// TestRateUnderPermit: a request waits for its token under its permit, and releases the permit when it
// gets none, because its client leaves or Wait is over.
func TestRateUnderPermit(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	s := in.serve(options(rated(in.rate(scarce)), wait(24*time.Hour)), ok)
	ctx, leave := context.WithCancel(ctxT(t))
	first := s.later(s.request(ctx, http.MethodGet, "acme", nil))
	in.holders("acme", 1)
	second := in.serve(options(rated(in.rate(ample))), ok).get("acme")
	require.Equal(t, limithttp.CodeKeyFull, second.problem(t).Code, "the permit is held while its request waits for a token")
	leave()
	require.Zero(t, testkit.Got(t, first, "it has left"))
	in.holders("acme", 0)

	s = in.serve(options(rated(in.rate(scarce)), wait(2*time.Second)), ok)
	require.Equal(t, limithttp.CodeRateExceeded, s.get("acme").problem(t).Code)
	in.holders("acme", 0)
	require.Zero(t, s.calls.Load())
}

// TestRateMismatch: a program with another rate than the stored one answers 500, and says why to its
// operator.
func TestRateMismatch(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	require.NoError(t, in.rate(ample).Wait(ctxT(t)))
	for name, lim := range in.limiters() {
		reported := make(reports, 1)
		s := in.serveBy(lim, options(rated(in.rate(scarce)), wait(soon), reported.option), ok)
		re := s.get("acme")
		require.Equal(t, http.StatusInternalServerError, re.StatusCode, name)
		require.Equal(t, limithttp.CodeInternal, re.problem(t).Code)
		var mismatch *concurrency.RateMismatchError
		require.ErrorAs(t, testkit.Got(t, reported, "the error"), &mismatch)
		require.Equal(t, ample, mismatch.Stored)
		require.Zero(t, s.calls.Load())
	}
	in.f.NoKeys("/key/")
}

// TestRateAndPanics: a handler that panics under a token leaves nothing behind.
func TestRateAndPanics(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	for _, lim := range in.limiters() {
		h := middleware(t, lim, options(rated(in.rate(ample)), wait(soon)))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			panic("planned")
		}))
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Tenant", "acme")
		require.PanicsWithValue(t, "planned", func() { h.ServeHTTP(httptest.NewRecorder(), r) })
	}
	in.f.NoKeys("/key/")
}

// TestRateTransport: an outgoing request that gets no token is not sent, and fails with its error; one
// that gets a token holds its permit until its body is closed.
func TestRateTransport(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	url, calls := downstream(t, ok)
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	calling := func(lim concurrency.Limiter, o limithttp.Options) *http.Client {
		rt, err := limithttp.Transport(lim, o, base)
		require.NoError(t, err)
		return &http.Client{Transport: rt}
	}
	for name, lim := range in.limiters() {
		resp, err := calling(lim, options(rated(in.rate(ample)), wait(soon))).Do(call(t, ctxT(t), http.MethodGet, url, "acme", nil))
		require.NoError(t, err)
		if lim != nil {
			in.holders("acme", 1)
		}
		require.NoError(t, resp.Body.Close())
		require.EqualValues(t, 1, calls.Swap(0))

		other := in.scarce()
		long := 50 * time.Millisecond
		if lim != nil {
			long = 2 * time.Second // a slow etcd needs some of it
		}
		for _, w := range []time.Duration{0, long} {
			body := &closing{Reader: strings.NewReader("a body")}
			_, err = calling(lim, options(rated(other), wait(w))).Do(call(t, ctxT(t), http.MethodPost, url, "acme", body))
			require.ErrorIs(t, err, concurrency.ErrRateExceeded, name)
			require.NotErrorIs(t, err, context.DeadlineExceeded, "the request's own context has not ended")
			require.ErrorContains(t, err, `"scarce"`)
			require.True(t, body.closed.Load())
		}
		ctx, leave := context.WithCancel(ctxT(t))
		leave()
		_, err = calling(lim, options(rated(in.rate(ample)), wait(soon))).Do(call(t, ctx, http.MethodGet, url, "acme", nil))
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, calls.Load())
	}
	in.f.NoKeys("/key/")
}
