package limithttp_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// TestLatencyIsNoOutage: a slow etcd refuses requests that cannot wait so long; none runs without a
// permit.
func TestLatencyIsNoOutage(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	s := in.serve(options(func(o *limithttp.Options) {
		o.Wait, o.Outage = 20*time.Millisecond, limithttp.Open
		o.OnOutage = func(err error) { t.Error(err) }
	}), ok)
	require.Eventually(t, func() bool { return s.get("acme").StatusCode == http.StatusOK }, soon, 5*time.Millisecond)
	before := s.calls.Load()
	in.client.Delay(100 * time.Millisecond)
	for range 5 {
		require.Equal(t, http.StatusServiceUnavailable, s.get("acme").StatusCode)
	}
	in.client.Heal()
	require.Equal(t, before, s.calls.Load())
	require.Eventually(t, func() bool { return s.get("acme").StatusCode == http.StatusOK }, soon, 10*time.Millisecond)
}

// TestEtcdIsGone: etcd is stopped while a service is under load, until the session has lost its lease, and
// started again. Under Closed the handlers never exceed the limit; under Open every request is served, and
// the limit holds again once etcd is back.
func TestEtcdIsGone(t *testing.T) {
	if testing.Short() {
		t.Skip("etcd is gone for longer than a lease")
	}
	t.Parallel()
	for name, policy := range map[string]limithttp.Outage{"closed": limithttp.Closed, "open": limithttp.Open} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const limit = 3
			f := testkit.Own(t, 1)
			in := on(f, testkit.Quick(), limit)
			var now, peak, without atomic.Int64
			changes := make(chan bool, 100)
			s := in.serve(options(func(o *limithttp.Options) {
				o.Wait, o.Outage, o.Patience = time.Second, policy, time.Second
				o.OnOutage = func(err error) { changes <- err != nil }
			}), func(w http.ResponseWriter, r *http.Request) {
				if _, permitted := limithttp.FromContext(r.Context()); !permitted {
					without.Add(1)
				}
				n := now.Add(1)
				defer now.Add(-1)
				for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() {
				}
				time.Sleep(20 * time.Millisecond)
			})
			ctx, stop := context.WithCancel(ctxT(t))
			var load sync.WaitGroup
			var statuses sync.Map // of those who came while it lasted
			for range 3 * limit {
				load.Go(func() {
					for ctx.Err() == nil {
						resp, err := s.Client().Do(s.request(ctxT(t), http.MethodGet, "acme", nil))
						if err != nil {
							t.Error(err)
							return
						}
						resp.Body.Close()
						n, _ := statuses.LoadOrStore(resp.StatusCode, new(atomic.Int64))
						n.(*atomic.Int64).Add(1)
						if resp.StatusCode != http.StatusOK {
							time.Sleep(10 * time.Millisecond)
						}
					}
				})
			}
			of := func(status int) int64 {
				n, _ := statuses.LoadOrStore(status, new(atomic.Int64))
				return n.(*atomic.Int64).Load()
			}
			require.Eventually(t, func() bool { return of(http.StatusOK) > 20 }, soon, 5*time.Millisecond)
			require.LessOrEqual(t, peak.Load(), int64(limit))
			require.NoError(t, f.Crash(0))
			require.True(t, testkit.Got(t, changes, "the outage begins"))
			before := of(http.StatusOK)
			require.Eventually(t, func() bool { return in.sess.Lease() == 0 }, soon, 10*time.Millisecond, "the lease is lost")
			answer := http.StatusServiceUnavailable
			if policy == limithttp.Open {
				answer = http.StatusOK
			}
			lost := of(answer)
			require.Eventually(t, func() bool { return of(answer) > lost+100 }, soon, 5*time.Millisecond, "requests are answered without a lease")
			during := of(http.StatusOK) - before
			require.NoError(t, f.Restart(ctxT(t), 0))
			require.False(t, testkit.Got(t, changes, "the outage ends"))
			if policy == limithttp.Open {
				require.Positive(t, during)
				require.Positive(t, without.Load())
				require.Eventually(t, func() bool { return now.Load() <= limit }, soon, 5*time.Millisecond)
			} else {
				require.Positive(t, of(http.StatusServiceUnavailable))
				require.LessOrEqual(t, peak.Load(), int64(limit))
				require.Zero(t, without.Load())
			}
			seen, served := without.Load(), of(http.StatusOK)
			require.Eventually(t, func() bool { return of(http.StatusOK) > served+20 }, soon, 5*time.Millisecond, "requests are served again")
			peak.Store(0)
			require.Eventually(t, func() bool { return of(http.StatusOK) > served+60 }, soon, 5*time.Millisecond)
			require.LessOrEqual(t, peak.Load(), int64(limit))
			t.Logf("%d served while etcd was gone, %d without a permit, %d refused by 503", during, seen, of(http.StatusServiceUnavailable))
			stop()
			load.Wait()
		})
	}
}
