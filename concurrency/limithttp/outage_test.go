package limithttp_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// TestOutage: one of two processes is cut off from etcd. Under Closed it answers 503. Under Open it
// serves all, each reported, and the other process keeps the limit for itself. When the network is
// back, both share the limit again.
func TestOutage(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for outages to be recognized")
	}
	t.Parallel()
	for name, policy := range map[string]limithttp.Outage{"closed": limithttp.Closed, "open": limithttp.Open} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := testkit.Shared(t)
			so := testkit.Quick
			cut, whole := on(f, so(), 1), on(f, so(), 1)
			changes := make(chan bool, 10)
			var reported atomic.Int64
			outage := func(o *limithttp.Options) {
				o.Wait, o.Outage, o.Patience = 500*time.Millisecond, policy, time.Millisecond
				o.OnOutage = func(err error) { changes <- err != nil }
				o.ReportError = func(*http.Request, error) { reported.Add(1) }
			}
			held, stop := make(chan error, 1), make(chan struct{})
			h := func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPut {
					<-r.Context().Done()
					p, _ := limithttp.FromContext(r.Context())
					held <- p.Err()
					<-stop
				}
				if _, permitted := limithttp.FromContext(r.Context()); !permitted {
					w.Header().Set("Permitted", "no")
				}
				ok(w, r)
			}
			a, b := cut.serve(options(outage), h), whole.serve(options(wait(testkit.Soon)), h)
			before := a.later(a.request(ctxT(t), http.MethodPut, "acme", nil))
			cut.holders("acme", 1)
			cut.client.Cut()

			for range 5 {
				re := a.get("acme")
				if policy == limithttp.Open {
					require.Equal(t, http.StatusOK, re.StatusCode)
					require.Equal(t, "no", re.Header.Get("Permitted"))
				} else {
					require.Equal(t, http.StatusServiceUnavailable, re.StatusCode)
					require.Equal(t, limithttp.CodeUnavailable, re.problem(t).Code)
					require.NotEmpty(t, re.Header.Get("Retry-After"))
				}
			}
			require.True(t, testkit.Got(t, changes, "the outage begins"))
			require.GreaterOrEqual(t, reported.Load(), int64(5))

			require.ErrorIs(t, testkit.Got(t, held, "the permit from before ends"), concurrency.ErrLost)
			require.Equal(t, http.StatusOK, b.get("acme").StatusCode, "the other process gets it")

			cut.client.Heal()
			close(stop)
			require.Equal(t, http.StatusOK, testkit.Got(t, before, "its response had no status yet, and it writes one"))
			require.Eventually(t, func() bool {
				re := a.get("acme")
				return re.StatusCode == http.StatusOK && re.Header.Get("Permitted") == ""
			}, soon, 100*time.Millisecond, "requests get permits again")
			require.False(t, testkit.Got(t, changes, "the outage ends"))
			p := whole.take("acme")
			require.Equal(t, http.StatusTooManyRequests, a.get("acme").StatusCode, "the limit is that of both")
			require.NoError(t, p.Release(ctxT(t)))
		})
	}
}

// TestLatencyIsNoOutage: a slow etcd refuses requests that cannot wait so long; none runs without a
// permit.
func TestLatencyIsNoOutage(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	s := in.serve(options(func(o *limithttp.Options) {
		o.Wait, o.Outage = 20*time.Millisecond, limithttp.Open
		o.OnOutage = func(err error) { t.Error(err) }
	}), ok)
	require.Equal(t, http.StatusOK, s.get("acme").StatusCode)
	in.client.Delay(100 * time.Millisecond)
	for range 5 {
		require.NotEqual(t, http.StatusOK, s.get("acme").StatusCode)
	}
	in.client.Heal()
	require.EqualValues(t, 1, s.calls.Load())
	require.Eventually(t, func() bool { return s.get("acme").StatusCode == http.StatusOK }, soon, 10*time.Millisecond)
}
