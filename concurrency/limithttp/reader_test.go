package limithttp_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// TestLongResponseBeforeTheRelease: a client of HTTP/1.1 can have read all of a response whose length is
// known, and which is long or was flushed, while its handler still holds the permit. Its next request on
// another connection is refused, unless it waits.
func TestLongResponseBeforeTheRelease(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	body, leave := strings.Repeat("x", 64<<10), make(chan struct{})
	h := func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.Header().Set("Content-Length", "65536")
			_, _ = io.WriteString(w, body)
			w.(http.Flusher).Flush()
			<-leave
		}
	}
	s := in.serve(options(), h)
	another := func(tenant string) int {
		conns := &http.Transport{}
		defer conns.CloseIdleConnections()
		resp, err := conns.RoundTrip(s.request(ctxT(t), http.MethodGet, tenant, nil))
		require.NoError(t, err)
		defer resp.Body.Close()
		return resp.StatusCode
	}
	patient := in.serve(options(wait(time.Hour)), h)
	require.Equal(t, body, s.send(s.request(ctxT(t), http.MethodPost, "acme", nil)).body)
	require.Equal(t, http.StatusTooManyRequests, another("acme"), "the handler has not returned")
	next := patient.later(patient.request(ctxT(t), http.MethodGet, "acme", nil))
	in.waiters("acme", 1)
	close(leave)
	require.Equal(t, http.StatusOK, testkit.Got(t, next, "the request that waits"))
}

// TestPausedTotal: a total of 0 refuses all keys with 503, and without Retry-After, since the end of the
// pause is unknown.
func TestPausedTotal(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	lim, err := concurrency.NewKeyedLimiter(in.sess, "with a total", 1, &concurrency.KeyedLimiterOptions{Total: 2})
	require.NoError(t, err)
	in.KeyedLimiter = lim
	s := in.serve(options(), ok)
	require.Equal(t, http.StatusOK, s.get("acme").StatusCode)
	require.NoError(t, lim.Total().SetLimit(ctxT(t), 0))
	for _, tenant := range []string{"acme", "other"} {
		re := s.get(tenant)
		require.Equal(t, http.StatusServiceUnavailable, re.StatusCode)
		require.Equal(t, limithttp.CodeTotalFull, re.problem(t).Code)
		require.Empty(t, re.Header.Get("Retry-After"))
	}
	require.NoError(t, lim.Total().SetLimit(ctxT(t), 2))
	require.Equal(t, http.StatusOK, s.get("acme").StatusCode)
}

// TestRetryAfterOfAnEstimate: a limiter by key estimates when a permit is free, from how long permits
// were held in this process; a semaphore does not.
func TestRetryAfterOfAnEstimate(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	for range 3 {
		p := in.take("acme")
		time.Sleep(10 * time.Millisecond)
		require.NoError(t, p.Release(ctxT(t)))
	}
	in.take("acme")
	_, err := in.Key("acme").TryAcquire(ctxT(t))
	var full *concurrency.FullError
	require.ErrorAs(t, err, &full)
	require.Positive(t, full.RetryAfter)

	sem, err := concurrency.NewSemaphore(in.sess, "single", 1, nil)
	require.NoError(t, err)
	for range 2 {
		p, err := sem.TryAcquire(ctxT(t))
		require.NoError(t, err)
		_, err = sem.TryAcquire(ctxT(t))
		full = nil
		require.ErrorAs(t, err, &full)
		require.Zero(t, full.RetryAfter)
		require.NoError(t, p.Release(ctxT(t)))
	}
}
