package idemhttp_test

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// soon bounds what should happen at once.
const soon = testkit.Soon

var (
	ctxT  = testkit.Context
	quick = testkit.Quick
)

// fixture is one etcd and a prefix of the test's own.
type fixture struct{ testkit.Fixture }

func shared(t testing.TB) fixture { return fixture{testkit.Shared(t)} }

// instance is a process of the fleet: a session and a store of its own.
type instance struct {
	*idempotency.Store
	sess   *concurrency.Session
	client *embedtest.Client
	f      fixture
}

func (f fixture) instance(so *concurrency.SessionOptions, opts *idempotency.Options) instance {
	f.T.Helper()
	s, c := f.Session(so)
	if opts == nil {
		opts = &idempotency.Options{SingleTenant: true}
	}
	st, err := idempotency.NewStore(s, "store", opts)
	require.NoError(f.T, err)
	return instance{st, s, c, f}
}

// middleware returns one that is set up well.
func (in instance) middleware(opts *idemhttp.Options) func(http.Handler) http.Handler {
	in.f.T.Helper()
	mw, err := idemhttp.Middleware(in.Store, opts)
	require.NoError(in.f.T, err)
	return mw
}

// server serves a handler behind the middleware.
type server struct {
	*httptest.Server
	t     testing.TB
	calls *atomic.Int64
}

func (in instance) serve(opts *idemhttp.Options, h http.HandlerFunc) server {
	var calls atomic.Int64
	mw := in.middleware(opts)
	return in.hosting(&calls, mw(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		h(w, r)
	})))
}

// hosting serves a handler as it is.
func (in instance) hosting(calls *atomic.Int64, h http.Handler) server {
	s := httptest.NewServer(h)
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

func (re reply) replayed() bool { return re.Header.Get("Idempotent-Replayed") == "true" }

// problem is the answer of the middleware's own, which the reply has to be.
func (re reply) problem(t testing.TB) idemhttp.Problem {
	t.Helper()
	require.Equal(t, "application/problem+json", re.Header.Get("Content-Type"), re.body)
	require.Equal(t, "en", re.Header.Get("Content-Language"))
	require.Equal(t, "no-store", re.Header.Get("Cache-Control"))
	var p idemhttp.Problem
	require.NoError(t, json.Unmarshal([]byte(re.body), &p))
	require.Equal(t, re.StatusCode, p.Status)
	return p
}

// with changes a request.
type with func(*http.Request)

func header(name, value string) with {
	return func(r *http.Request) { r.Header.Add(name, value) }
}

func (s server) request(path, key, body string, ws ...with) *http.Request {
	s.t.Helper()
	r, err := http.NewRequestWithContext(ctxT(s.t), http.MethodPost, s.URL+path, strings.NewReader(body))
	require.NoError(s.t, err)
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	for _, w := range ws {
		w(r)
	}
	return r
}

func (s server) post(path, key, body string, ws ...with) reply {
	s.t.Helper()
	re, err := s.send(s.request(path, key, body, ws...))
	require.NoError(s.t, err)
	return re
}

// send is for other goroutines than the test's, too.
func (s server) send(r *http.Request) (reply, error) {
	tr := &http.Transport{DisableCompression: true}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Do(r)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return reply{resp, string(b)}, err
}

// later posts from another goroutine.
func (s server) later(path, key, body string, ws ...with) <-chan reply {
	ch := make(chan reply, 1)
	r := s.request(path, key, body, ws...)
	go func() {
		if re, err := s.send(r); err == nil {
			ch <- re
		}
	}()
	return ch
}

// paid is the handler of most tests.
func paid(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Location", "/payments/1")
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, `{"paid":1}`)
}

// blocking is a handler that says when it begins, and waits.
type blocking struct {
	begun chan *http.Request
	end   chan struct{}
}

func newBlocking(t testing.TB) *blocking {
	b := &blocking{begun: make(chan *http.Request, 100), end: make(chan struct{})}
	t.Cleanup(b.release)
	return b
}

func (b *blocking) release() {
	select {
	case <-b.end:
	default:
		close(b.end)
	}
}

func (b *blocking) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.begun <- r
	<-b.end
	paid(w, r)
}

// values returns all values below the fixture's prefix.
func (f fixture) values() (all []string) {
	f.T.Helper()
	resp, err := f.Client().Get(ctxT(f.T), f.Root, clientv3.WithPrefix())
	require.NoError(f.T, err)
	for _, kv := range resp.Kvs {
		all = append(all, string(kv.Value))
		// Results are base64 in the record's JSON.
		var rec map[string]any
		if json.Unmarshal(kv.Value, &rec) == nil {
			for _, v := range rec {
				if s, ok := v.(string); ok {
					if b, err := base64.StdEncoding.DecodeString(s); err == nil {
						all = append(all, string(b))
					}
				}
			}
		}
	}
	return all
}

func got[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	return testkit.Got(t, ch, what)
}
