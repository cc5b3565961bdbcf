package limithttp_test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// Failures of other limiters: section P of internal/proof/tested-failures.md.

// TestPeerP14GrantedIsConsuming: work that has done its limited part and goes on with another holds no
// permit meanwhile.
func TestPeerP14GrantedIsConsuming(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	url, _ := downstream(t, ok)
	provider := in.calling(options(), nil)
	ask := func(ctx context.Context) error {
		resp, err := provider.Do(call(t, ctx, http.MethodGet, url, "acme", nil))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	asked, finish := make(chan error, 1), make(chan struct{})
	go func() {
		asked <- ask(ctxT(t))
		<-finish // an hour of work without the provider
	}()
	require.NoError(t, testkit.Got(t, asked, "the first agent has asked"))
	for range 5 {
		require.NoError(t, ask(ctxT(t)), "the first agent works on, without a permit")
	}
	close(finish)
}

// TestPeerP15OutageIsNoQuota: with nothing but the defaults, an outage of etcd lets nothing pass, is
// answered as an outage and reported; a full key is answered as the client's own limit, and is no report.
func TestPeerP15OutageIsNoQuota(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	rs := make(reports, 10)
	s := in.serve(options(wait(300*time.Millisecond), rs.option), ok)
	p := in.take("acme")
	refused := s.get("acme")
	require.Equal(t, http.StatusTooManyRequests, refused.StatusCode)
	require.NotEmpty(t, refused.Header.Get("RateLimit-Policy"))
	require.Empty(t, rs)
	require.NoError(t, p.Release(ctxT(t)))

	in.client.Cut()
	refused = s.get("acme")
	require.Equal(t, http.StatusServiceUnavailable, refused.StatusCode)
	require.NotEmpty(t, refused.Header.Get("Retry-After"))
	require.Empty(t, refused.Header.Get("RateLimit-Policy"), "no quota is to blame")
	require.ErrorIs(t, testkit.Got(t, rs, "the report"), concurrency.ErrUnavailable)
	require.Zero(t, s.calls.Load())
	in.client.Heal()
}

// TestPeerP17WaitsNoLongerThanItsClient: a client that leaves ends the wait for its key and for the
// total, long before Wait has passed; a refusal says when to retry.
func TestPeerP17WaitsNoLongerThanItsClient(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	lim, err := concurrency.NewKeyedLimiter(in.sess, "with a total", 1, &concurrency.KeyedLimiterOptions{Total: 1})
	require.NoError(t, err)
	in.KeyedLimiter = lim
	in.take("acme")
	s := in.serve(options(wait(2*soon)), ok)
	for tenant, queue := range map[string]*concurrency.Semaphore{"acme": lim.Key("acme"), "other": lim.Total()} {
		waiters := func(n int) {
			require.Eventually(t, func() bool {
				st, err := queue.Status(ctxT(t))
				return err == nil && len(st.Waiters) == n
			}, soon, 5*time.Millisecond)
		}
		ctx, leave := context.WithCancel(ctxT(t))
		r := s.later(s.request(ctx, http.MethodGet, tenant, nil))
		waiters(1)
		leave()
		require.Zero(t, testkit.Got(t, r, "the request ends"))
		waiters(0)
	}
	require.Zero(t, s.calls.Load())
	at := in.serve(options(), ok)
	for tenant, status := range map[string]int{"acme": http.StatusTooManyRequests, "other": http.StatusServiceUnavailable} {
		re := at.get(tenant)
		require.Equal(t, status, re.StatusCode)
		seconds, err := strconv.Atoi(re.Header.Get("Retry-After"))
		require.NoError(t, err)
		require.GreaterOrEqual(t, seconds, 1)
	}
}
