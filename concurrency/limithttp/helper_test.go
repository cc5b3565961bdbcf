package limithttp_test

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// soon bounds what should happen at once.
const soon = testkit.Soon

var ctxT = testkit.Context

// instance is a process of the fleet.
type instance struct {
	*concurrency.KeyedLimiter
	f      testkit.Fixture
	sess   *concurrency.Session
	client *embedtest.Client
}

func newInstance(t testing.TB, limit int) instance {
	t.Helper()
	return on(testkit.Shared(t), &concurrency.SessionOptions{TTL: 300 * time.Second}, limit)
}

func on(f testkit.Fixture, so *concurrency.SessionOptions, limit int) instance {
	f.T.Helper()
	s, c := f.Session(so)
	lim, err := concurrency.NewKeyedLimiter(s, "tenants", limit, nil)
	require.NoError(f.T, err)
	return instance{lim, f, s, c}
}

// byTenant is the Key of most tests: the header Tenant. A request without one is not limited, and
// that of the tenant "empty" has no key.
func byTenant(r *http.Request) (string, bool) {
	tenant := r.Header.Get("Tenant")
	if tenant == "empty" {
		return "", true
	}
	return tenant, tenant != ""
}

// options are those of most tests.
func options(change ...func(*limithttp.Options)) limithttp.Options {
	o := limithttp.Options{Key: byTenant}
	for _, c := range change {
		c(&o)
	}
	return o
}

func wait(d time.Duration) func(*limithttp.Options) {
	return func(o *limithttp.Options) { o.Wait = d }
}

func middleware(t testing.TB, lim concurrency.Limiter, o limithttp.Options) func(http.Handler) http.Handler {
	t.Helper()
	mw, err := limithttp.Middleware(lim, o)
	require.NoError(t, err)
	return mw
}

// server serves a handler behind the middleware.
type server struct {
	*httptest.Server
	t     testing.TB
	calls *atomic.Int64
}

func (in instance) serve(o limithttp.Options, h http.HandlerFunc, change ...func(*httptest.Server)) server {
	in.f.T.Helper()
	return in.serveBy(in, o, h, change...)
}

// serveBy is serve with another limiter, or none.
func (in instance) serveBy(lim concurrency.Limiter, o limithttp.Options, h http.HandlerFunc, change ...func(*httptest.Server)) server {
	in.f.T.Helper()
	calls := new(atomic.Int64)
	s := httptest.NewUnstartedServer(middleware(in.f.T, lim, o)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		h(w, r)
	})))
	for _, c := range change {
		c(s)
	}
	if s.Config.ErrorLog == nil {
		s.Config.ErrorLog = log.New(io.Discard, "", 0) // planned panics
	}
	if s.EnableHTTP2 || s.TLS != nil {
		s.StartTLS()
	} else {
		s.Start()
	}
	in.f.T.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return server{s, in.f.T, calls}
}

// reply is a response that was read.
type reply struct {
	*http.Response
	body string
}

// problem is the answer of the middleware's own, which the reply has to be.
func (re reply) problem(t testing.TB) limithttp.Problem {
	t.Helper()
	require.Equal(t, "application/problem+json", re.Header.Get("Content-Type"), re.body)
	require.Equal(t, "no-store", re.Header.Get("Cache-Control"))
	var p limithttp.Problem
	require.NoError(t, json.Unmarshal([]byte(re.body), &p))
	require.Equal(t, re.StatusCode, p.Status)
	return p
}

func (s server) request(ctx context.Context, method, tenant string, body io.Reader) *http.Request {
	s.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, s.URL+"/work", body)
	require.NoError(s.t, err)
	if tenant != "" {
		r.Header.Set("Tenant", tenant)
	}
	return r
}

func (s server) send(r *http.Request) reply {
	s.t.Helper()
	resp, err := s.Client().Do(r)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return reply{resp, string(b)}
}

func (s server) get(tenant string) reply {
	s.t.Helper()
	return s.send(s.request(ctxT(s.t), http.MethodGet, tenant, nil))
}

// later sends a request in a goroutine; its channel has the status, or 0 after an error.
func (s server) later(r *http.Request) <-chan int {
	ch := make(chan int, 1)
	go func() {
		resp, err := s.Client().Do(r)
		if err != nil {
			ch <- 0
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		ch <- resp.StatusCode
	}()
	return ch
}

// waiters waits until so many requests of a key wait in etcd.
func (in instance) waiters(key string, n int) {
	in.f.T.Helper()
	in.until(key, func(st concurrency.Status) bool { return len(st.Waiters) == n })
}

// holders waits until so many requests of a key hold permits.
func (in instance) holders(key string, n int) {
	in.f.T.Helper()
	in.until(key, func(st concurrency.Status) bool { return len(st.Holders) == n })
}

func (in instance) until(key string, ok func(concurrency.Status) bool) {
	in.f.T.Helper()
	var last concurrency.Status
	for st, err := range in.Key(key).Watch(ctxT(in.f.T)) {
		require.NoError(in.f.T, err)
		if last = st; ok(st) {
			return
		}
	}
	require.FailNow(in.f.T, "the queue never was so", "%+v", last)
}

// take takes a permit beside the middleware.
func (in instance) take(key string, opts ...concurrency.AcquireOption) *concurrency.Permit {
	in.f.T.Helper()
	p, err := in.Key(key).TryAcquire(ctxT(in.f.T), opts...)
	require.NoError(in.f.T, err)
	in.f.T.Cleanup(func() { _ = p.Release(context.WithoutCancel(ctxT(in.f.T))) })
	return p
}

// reports is a ReportError, for as many errors as it has room for.
type reports chan error

func (rs reports) option(o *limithttp.Options) {
	o.ReportError = func(_ *http.Request, err error) {
		select {
		case rs <- err:
		default: // the test has as many as it wants
		}
	}
}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") }
