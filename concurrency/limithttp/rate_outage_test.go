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

// TestRateOutlivesSilence: while the lease of its shares is trusted, a process takes tokens without
// etcd.
func TestRateOutlivesSilence(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	reported := make(reports, 10)
	s := in.serveBy(nil, options(rated(in.rate(ample)), wait(soon), reported.option), ok)
	require.Equal(t, http.StatusOK, s.get("acme").StatusCode)
	in.client.Cut()
	for range 50 {
		require.Equal(t, http.StatusOK, s.get("acme").StatusCode)
	}
	in.client.Heal()
	require.Empty(t, reported)
}

// TestRateLimitsOpen: in an outage of the limiter's etcd a request passes without a permit, but not
// without a token as long as there are tokens.
func TestRateLimitsOpen(t *testing.T) {
	t.Parallel()
	f := testkit.Shared(t)
	so := &concurrency.SessionOptions{TTL: 300 * time.Second}
	cut, whole := on(f, so, 1), on(f, so, 1)
	require.NoError(t, whole.rate(ample).Wait(ctxT(t)), "this process has a share")
	cut.client.Cut()
	open := func(o *limithttp.Options) {
		o.Outage, o.Patience, o.Wait = limithttp.Open, time.Millisecond, 200*time.Millisecond
	}
	reported := make(reports, 10)
	require.Equal(t, http.StatusOK, cut.serve(options(rated(whole.rate(ample)), open, reported.option), ok).get("acme").StatusCode)
	require.ErrorIs(t, testkit.Got(t, reported, "it ran without a permit"), concurrency.ErrUnavailable)
	s := cut.serve(options(rated(whole.scarce()), open), ok)
	require.Equal(t, limithttp.CodeRateExceeded, s.get("acme").problem(t).Code)
	require.Zero(t, s.calls.Load())
	cut.client.Heal()
}

// TestRateWithoutEtcd: etcd is stopped for longer than a lease. Closed answers 503 then. Open serves
// each request and reports it. When etcd is back, requests take tokens again.
func TestRateWithoutEtcd(t *testing.T) {
	if testing.Short() {
		t.Skip("leases have to end")
	}
	t.Parallel()
	f := testkit.Own(t, 1)
	type service struct {
		server
		name     string
		open     bool
		changes  chan bool
		reported *atomic.Int64
	}
	var services []service
	in := on(f, testkit.Quick(), 10)
	for name, lim := range in.limiters() {
		for _, policy := range []limithttp.Outage{limithttp.Closed, limithttp.Open} {
			changes, reported := make(chan bool, 100), new(atomic.Int64)
			s := in.serveBy(lim, options(rated(in.rate(ample)), func(o *limithttp.Options) {
				o.Wait, o.Outage, o.Patience = 200*time.Millisecond, policy, time.Second
				o.OnOutage = func(err error) { changes <- err != nil }
				o.ReportError = func(*http.Request, error) { reported.Add(1) }
			}), ok)
			services = append(services, service{s, name, policy == limithttp.Open, changes, reported})
		}
	}
	served := func(s service) func() bool {
		return func() bool { return s.get("acme").StatusCode == http.StatusOK }
	}
	for _, s := range services {
		require.Eventually(t, served(s), soon, 10*time.Millisecond, s.name)
	}
	require.NoError(t, f.Crash(0))
	for _, s := range services {
		require.Eventually(t, func() bool { s.get("acme"); return len(s.changes) > 0 }, soon, 100*time.Millisecond, s.name)
		require.True(t, <-s.changes, "the outage begins")
		before := s.reported.Load()
		for range 5 {
			re := s.get("acme")
			if s.open {
				require.Equal(t, http.StatusOK, re.StatusCode, s.name)
			} else {
				require.Equal(t, limithttp.CodeUnavailable, re.problem(t).Code, s.name)
			}
		}
		require.Equal(t, int64(5), s.reported.Load()-before, "each is reported once")
		require.Empty(t, s.changes)
	}
	require.NoError(t, f.Restart(ctxT(t), 0))
	for _, s := range services {
		require.Eventually(t, func() bool { s.get("acme"); return len(s.changes) > 0 }, soon, 100*time.Millisecond, s.name)
		require.False(t, <-s.changes, "the outage ends")
		require.Eventually(t, func() bool {
			before := s.reported.Load()
			return s.get("acme").StatusCode == http.StatusOK && s.reported.Load() == before
		}, soon, 100*time.Millisecond, "with tokens again")
	}
}
