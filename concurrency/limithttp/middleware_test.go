package limithttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// TestLimitOfAKey: what is above the limit of a key gets a 429; other keys, and requests that are
// not limited, are not concerned; a response under the limit has no header of the middleware's.
func TestLimitOfAKey(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	entered, leave := make(chan struct{}), make(chan struct{})
	s := in.serve(options(), func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			close(entered)
			<-leave
		}
		ok(w, r)
	})
	first := s.later(s.request(ctxT(t), http.MethodPost, "acme", nil))
	testkit.Closed(t, entered, "the handler runs")

	refused := s.get("acme")
	require.Equal(t, http.StatusTooManyRequests, refused.StatusCode)
	require.Equal(t, limithttp.CodeKeyFull, refused.problem(t).Code)
	require.Equal(t, `"concurrency";q=1;qu="concurrent-requests"`, refused.Header.Get("RateLimit-Policy"))
	require.Equal(t, `"concurrency";r=0`, refused.Header.Get("RateLimit"))
	require.NotEmpty(t, refused.Header.Get("Retry-After"))

	for _, tenant := range []string{"other", ""} {
		re := s.get(tenant)
		require.Equal(t, "done", re.body)
		for name := range re.Header {
			require.NotContains(t, strings.ToLower(name), "ratelimit")
			require.NotEqual(t, "Retry-After", name)
		}
	}
	close(leave)
	require.Equal(t, http.StatusOK, testkit.Got(t, first, "the first request"))
	for range 50 { // a client with a limit of 1 that sends one after the other is never refused
		require.Equal(t, http.StatusOK, s.get("acme").StatusCode)
	}
	in.f.NoKeys("/key/acme/")
}

// TestFleetNeverExceedsTheLimit: two processes together never run more than the limit, by the
// count of the handlers themselves, and each request that waits long enough is served.
func TestFleetNeverExceedsTheLimit(t *testing.T) {
	t.Parallel()
	f := testkit.Shared(t)
	var now, peak atomic.Int64
	var all sync.WaitGroup
	for range 2 {
		in := on(f, &concurrency.SessionOptions{TTL: 300 * time.Second}, 3)
		s := in.serve(options(wait(time.Minute)), func(w http.ResponseWriter, r *http.Request) {
			n := now.Add(1)
			for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() {
			}
			time.Sleep(time.Millisecond)
			now.Add(-1)
		})
		for range 20 {
			all.Go(func() {
				for range 5 {
					resp, err := s.Client().Do(s.request(ctxT(t), http.MethodGet, "acme", nil))
					if err != nil {
						t.Error(err)
						return
					}
					resp.Body.Close()
					if resp.StatusCode != http.StatusOK {
						t.Error(resp.Status)
					}
				}
			})
		}
	}
	all.Wait()
	require.LessOrEqual(t, peak.Load(), int64(3))
	require.Positive(t, peak.Load())
}

// TestWait: a request waits for its turn, and is refused when Wait has passed; MaxWaiters refuses
// at once.
func TestWait(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	p := in.take("acme")
	s := in.serve(options(wait(time.Second)), ok)
	require.Equal(t, http.StatusTooManyRequests, s.get("acme").StatusCode)
	require.Zero(t, s.calls.Load())
	in.waiters("acme", 0) // its request is being removed

	patient := in.serve(options(wait(time.Hour), func(o *limithttp.Options) { o.MaxWaiters = 1 }), ok)
	first := patient.later(patient.request(ctxT(t), http.MethodGet, "acme", nil))
	in.waiters("acme", 1)
	require.Equal(t, http.StatusTooManyRequests, patient.get("acme").StatusCode)
	require.NoError(t, p.Release(ctxT(t)))
	require.Equal(t, http.StatusOK, testkit.Got(t, first, "the request that waits"))
}

// TestPaused: a limit of 0 refuses without Retry-After, and the limit changes while the service runs.
func TestPaused(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	s := in.serve(options(), ok)
	require.Equal(t, http.StatusOK, s.get("acme").StatusCode)
	require.NoError(t, in.Key("acme").SetLimit(ctxT(t), 0, concurrency.CreateLimit()))
	paused := s.get("acme")
	require.Equal(t, http.StatusTooManyRequests, paused.StatusCode)
	require.Empty(t, paused.Header.Get("Retry-After"))
	require.NoError(t, in.ClearLimit(ctxT(t), "acme"))
	require.Equal(t, http.StatusOK, s.get("acme").StatusCode)
}

// TestBadKey: an empty key, and one that etcd cannot have, is an error of the program; nothing is
// sent to etcd.
func TestBadKey(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	rs := make(reports, 1)
	s := in.serve(options(rs.option), ok)
	in.client.Cut() // a request that asked etcd would not return
	for _, bad := range []string{"empty", strings.Repeat("x", 10<<10)} {
		re := s.get(bad)
		require.Equal(t, http.StatusInternalServerError, re.StatusCode)
		require.Equal(t, limithttp.CodeInternal, re.problem(t).Code)
		require.ErrorIs(t, testkit.Got(t, rs, "the report"), concurrency.ErrInvalid)
	}
	require.Zero(t, s.calls.Load())
	in.client.Heal()
	require.Empty(t, in.f.Keys("tenants"))
}

// TestKeyPanics: a key function that panics ends its request alone, and takes nothing.
func TestKeyPanics(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	s := in.serve(limithttp.Options{Key: func(r *http.Request) (string, bool) {
		if r.Header.Get("Tenant") == "bad" {
			panic("planned")
		}
		return byTenant(r)
	}}, ok)
	require.Zero(t, testkit.Got(t, s.later(s.request(ctxT(t), http.MethodGet, "bad", nil)), "the connection ends"))
	require.Empty(t, in.f.Keys("tenants"))
	require.Equal(t, http.StatusOK, s.get("acme").StatusCode)
}

// TestHandlerPanics: a handler that panics releases its permit.
func TestHandlerPanics(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	s := in.serve(options(), func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			panic("planned")
		}
		ok(w, r)
	})
	require.Zero(t, testkit.Got(t, s.later(s.request(ctxT(t), http.MethodPut, "acme", nil)), "the connection ends"))
	require.Equal(t, http.StatusOK, s.get("acme").StatusCode)
}

// TestHandlerNeverReturns: MaxHold gives the permit of a stuck handler to the next request, and ends
// the handler's context.
func TestHandlerNeverReturns(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	stuck, ended := make(chan struct{}), make(chan error, 1)
	rs := make(reports, 1)
	s := in.serve(options(wait(time.Hour), rs.option, func(o *limithttp.Options) {
		o.Each = func(r *http.Request) []concurrency.AcquireOption {
			if r.Method == http.MethodPut {
				return []concurrency.AcquireOption{concurrency.MaxHold(50 * time.Millisecond)}
			}
			return nil
		}
	}), func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			<-r.Context().Done()
			ended <- context.Cause(r.Context())
			<-stuck
			return
		}
		ok(w, r)
	})
	first := s.later(s.request(ctxT(t), http.MethodPut, "acme", nil))
	require.ErrorIs(t, testkit.Got(t, ended, "the context ends"), concurrency.ErrTooLong)
	require.Equal(t, http.StatusOK, s.get("acme").StatusCode)
	close(stuck)
	require.Equal(t, http.StatusInternalServerError, testkit.Got(t, first, "the stuck handler"), "it returned without a response")
	require.ErrorIs(t, testkit.Got(t, rs, "the report"), concurrency.ErrTooLong)
}

// TestHandlerSeesItsPermit: the handler's context has the permit, its values and its end.
func TestHandlerSeesItsPermit(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	rs := make(reports, 1)
	type own struct{}
	h := middleware(t, in, options(rs.option, func(o *limithttp.Options) {
		o.Each = func(*http.Request) []concurrency.AcquireOption {
			return []concurrency.AcquireOption{concurrency.ID("flow")}
		}
	}))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, held := limithttp.FromContext(r.Context())
		require.True(t, held)
		require.Positive(t, p.Token())
		require.Equal(t, "value", r.Context().Value(own{}))
		child, cancel := context.WithCancel(r.Context())
		defer cancel()
		require.NoError(t, in.Key("acme").Evict(ctxT(t), "flow", "test"))
		testkit.Closed(t, child.Done(), "the context ends with its permit")
		require.ErrorIs(t, context.Cause(child), concurrency.ErrEvicted)
	}))
	_, held := limithttp.FromContext(t.Context())
	require.False(t, held)
	r := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(context.WithValue(ctxT(t), own{}, "value"))
	r.Header.Set("Tenant", "acme")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.ErrorIs(t, testkit.Got(t, rs, "the report"), concurrency.ErrEvicted)
}

// TestIDInUse: two requests with one ID do not run together.
func TestIDInUse(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 2)
	in.take("acme", concurrency.ID("flow"))
	s := in.serve(options(func(o *limithttp.Options) {
		o.Each = func(*http.Request) []concurrency.AcquireOption {
			return []concurrency.AcquireOption{concurrency.ID("flow")}
		}
	}), ok)
	require.Equal(t, http.StatusConflict, s.get("acme").StatusCode)
}

// TestNestedLimits: a request takes one permit of a limiter; of another limiter it takes one more.
func TestNestedLimits(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 5)
	routes, err := concurrency.NewKeyedLimiter(in.sess, "routes", 1, nil)
	require.NoError(t, err)
	rs := make(reports, 1)
	same, other := middleware(t, in, options(rs.option)), middleware(t, routes, options(rs.option))
	serve := func(h http.Handler) int {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Tenant", "acme")
		h.ServeHTTP(w, r.WithContext(ctxT(t)))
		return w.Code
	}
	require.Equal(t, http.StatusOK, serve(other(same(http.HandlerFunc(ok)))))
	require.Equal(t, http.StatusInternalServerError, serve(same(other(same(http.HandlerFunc(ok))))))
	require.ErrorContains(t, testkit.Got(t, rs, "the report"), "permit of this limiter already")

	var later context.Context
	require.Equal(t, http.StatusOK, serve(same(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		later = context.WithoutCancel(r.Context())
	}))))
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(later)
	r.Header.Set("Tenant", "acme")
	same(http.HandlerFunc(ok)).ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code, "the permit in the context was released")
}

// TestTooManyKeys: a key beyond MaxKeys is 503 and reported; those that are in use are served.
func TestTooManyKeys(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 5)
	lim, err := concurrency.NewKeyedLimiter(in.sess, "tenants", 5, &concurrency.KeyedLimiterOptions{MaxKeys: 1})
	require.NoError(t, err)
	in.take("acme")
	rs := make(reports, 1)
	h := middleware(t, lim, options(rs.option))(http.HandlerFunc(ok))
	serve := func(tenant string) int {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctxT(t))
		r.Header.Set("Tenant", tenant)
		h.ServeHTTP(w, r)
		return w.Code
	}
	require.Equal(t, http.StatusServiceUnavailable, serve("made up"))
	require.ErrorIs(t, testkit.Got(t, rs, "the report"), concurrency.ErrTooMany)
	require.Equal(t, http.StatusOK, serve("acme"))
}

// TestEnabled: the limit is switched off and on while the service runs.
func TestEnabled(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	in.take("acme")
	var enabled atomic.Bool
	s := in.serve(options(func(o *limithttp.Options) { o.Enabled = enabled.Load }), ok)
	for _, on := range []bool{false, true, false} {
		enabled.Store(on)
		want := http.StatusOK
		if on {
			want = http.StatusTooManyRequests
		}
		require.Equal(t, want, s.get("acme").StatusCode)
	}
}

// A497: Single limits all keys together. Its full limit is the service's, and no quota of a client.
func TestOneSemaphore(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	sem, err := concurrency.NewSemaphore(in.sess, "slow", 1, nil)
	require.NoError(t, err)
	p, err := sem.TryAcquire(ctxT(t))
	require.NoError(t, err)
	h := middleware(t, concurrency.Single(sem), options())(http.HandlerFunc(ok))
	for _, c := range []struct {
		tenant string
		want   int
	}{{"a", 503}, {"b", 503}, {"a", 200}, {"b", 200}} {
		if c.want == http.StatusOK {
			require.NoError(t, p.Release(ctxT(t)))
		}
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctxT(t))
		r.Header.Set("Tenant", c.tenant)
		h.ServeHTTP(w, r)
		require.Equal(t, c.want, w.Code)
		require.Equal(t, c.want == 503, strings.Contains(w.Body.String(), `"code":"total-full"`))
		require.Empty(t, w.Header().Get("RateLimit-Policy")+w.Header().Get("RateLimit"))
	}
}

// TestOwnProblems: OnProblem writes the answer; the headers are set.
func TestOwnProblems(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	in.take("acme")
	s := in.serve(options(func(o *limithttp.Options) {
		o.Policy = "per tenant"
		o.OnProblem = func(w http.ResponseWriter, _ *http.Request, p limithttp.Problem) {
			w.WriteHeader(p.Status)
			_, _ = w.Write([]byte(p.Code))
		}
	}), ok)
	re := s.get("acme")
	require.Equal(t, http.StatusTooManyRequests, re.StatusCode)
	require.Equal(t, "key-full", re.body)
	require.Equal(t, `"per tenant";q=1;qu="concurrent-requests"`, re.Header.Get("RateLimit-Policy"))
}

// TestClosedSession: a process that shuts down answers 503.
func TestClosedSession(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	rs := make(reports, 1)
	s := in.serve(options(rs.option), ok)
	require.NoError(t, in.sess.Close(ctxT(t)))
	re := s.get("acme")
	require.Equal(t, http.StatusServiceUnavailable, re.StatusCode)
	require.Equal(t, limithttp.CodeUnavailable, re.problem(t).Code)
	require.NotEmpty(t, re.Header.Get("Retry-After"))
	require.ErrorIs(t, testkit.Got(t, rs, "the report"), concurrency.ErrClosed)
}

// TestTimeoutHandler: a handler behind a timeout holds its permit until it has returned, after the
// client was answered.
func TestTimeoutHandler(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	ctx, timeout := context.WithCancel(ctxT(t)) // which the timeout of an hour would end
	leave := make(chan struct{})
	h := http.TimeoutHandler(middleware(t, in, options())(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		timeout()
		<-leave
	})), time.Hour, "")
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx)
	r.Header.Set("Tenant", "acme")
	h.ServeHTTP(w, r)
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	in.holders("acme", 1)
	close(leave)
	in.holders("acme", 0)
}
