package limithttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// TestClientLeavesItsHandler: a client that leaves while its handler runs ends the handler's context,
// and not its permit: the handler is still a load.
func TestClientLeavesItsHandler(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*httptest.Server){"HTTP/1.1": func(*httptest.Server) {}, "HTTP/2": http2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := newInstance(t, 1)
			entered, left, leave := make(chan struct{}), make(chan struct{}), make(chan struct{})
			s := in.serve(options(), func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPut {
					close(entered)
					<-r.Context().Done()
					close(left)
					<-leave
				}
				ok(w, r)
			}, change)
			finish := sync.OnceFunc(func() { close(leave) })
			t.Cleanup(finish) // before the server is closed
			ctx, cancel := context.WithCancel(ctxT(t))
			first := s.later(s.request(ctx, http.MethodPut, "acme", nil))
			testkit.Closed(t, entered, "the handler runs") // not before: the client would leave while its request waits
			cancel()
			testkit.Closed(t, left, "the handler's context ends")
			require.Zero(t, testkit.Got(t, first, "the request ends"))
			for range 10 {
				require.Equal(t, http.StatusTooManyRequests, s.get("acme").StatusCode, "the handler runs")
			}
			finish()
			in.holders("acme", 0)
			require.Equal(t, http.StatusOK, s.get("acme").StatusCode)
		})
	}
}

// TestEnabledUnderLoad: the limit is switched off and on while requests run. Each permit is released
// by the request that has it, and the limit holds again once those that began without one have ended.
func TestEnabledUnderLoad(t *testing.T) {
	t.Parallel()
	const limit = 2
	in := newInstance(t, limit)
	var enabled atomic.Bool
	var permitted gauge
	enabled.Store(true)
	s := in.serve(options(wait(soon), func(o *limithttp.Options) { o.Enabled = enabled.Load }), func(_ http.ResponseWriter, r *http.Request) {
		if _, has := limithttp.FromContext(r.Context()); has {
			permitted.run(func() { time.Sleep(time.Millisecond) }) // work, so that requests overlap
		}
	})
	ctx, stop := context.WithCancel(ctxT(t))
	defer stop()
	var load sync.WaitGroup
	for range 8 {
		load.Go(func() {
			for ctx.Err() == nil {
				if status := <-s.later(s.request(context.WithoutCancel(ctx), http.MethodGet, "acme", nil)); status != http.StatusOK {
					t.Error(status)
				}
			}
		})
	}
	for range 50 {
		n := s.calls.Load()
		require.Eventually(t, func() bool { return s.calls.Load() > n+5 }, soon, 5*time.Millisecond)
		enabled.Store(!enabled.Load())
	}
	stop()
	load.Wait()
	require.Positive(t, permitted.peak.Load())
	require.LessOrEqual(t, permitted.peak.Load(), int64(limit))
	in.holders("acme", 0)
	in.waiters("acme", 0)
}
