package console_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/console"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// site is a console at an address of its own.
type site struct {
	testkit.Fixture
	t       *testing.T
	url     string
	http    *http.Client
	handler http.Handler
	etcd    *embedtest.Client // of the console
}

// all allows everything.
func all(*http.Request, console.Action) error { return nil }

// open serves a console below a path.
func open(t *testing.T, below string, opts *console.Options) *site {
	t.Helper()
	f := testkit.Shared(t)
	s, etcd := f.Session(&concurrency.SessionOptions{Owner: "console"})
	return serve(t, f, s, etcd, below, opts)
}

// openLeaseless is open for a console whose session has no lease, as that of the command.
func openLeaseless(t *testing.T, opts *console.Options) *site {
	t.Helper()
	f := testkit.Shared(t)
	etcd := f.NewClient(t, nil)
	s, err := concurrency.NewSession(engine.Leaseless(testkit.Context(t)), etcd.Client, "test", &concurrency.SessionOptions{Prefix: f.Root, Owner: "console"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return serve(t, f, s, etcd, "", opts)
}

// serve serves the console of a session below a path.
func serve(t *testing.T, f testkit.Fixture, s *concurrency.Session, etcd *embedtest.Client, below string, opts *console.Options) *site {
	t.Helper()
	h, err := console.Handler(s, opts)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle(below+"/", http.StripPrefix(below, h))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	client := server.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &site{f, t, server.URL + below, client, h, etcd}
}

// answer is a response that was read.
type answer struct {
	*http.Response
	body string
}

func (s *site) do(r *http.Request) answer {
	s.t.Helper()
	resp, err := s.http.Do(r)
	require.NoError(s.t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return answer{resp, string(body)}
}

// get reads a page.
func (s *site) get(path string, edit ...func(*http.Request)) answer {
	s.t.Helper()
	r, err := http.NewRequestWithContext(testkit.Context(s.t), http.MethodGet, s.url+path, nil)
	require.NoError(s.t, err)
	for _, e := range edit {
		e(r)
	}
	return s.do(r)
}

// page reads a page that is there.
func (s *site) page(path string) string {
	s.t.Helper()
	a := s.get(path)
	require.Equal(s.t, http.StatusOK, a.StatusCode, "%s: %s", path, a.body)
	return a.body
}

// post sends a form, as a page of the console does.
func (s *site) post(form url.Values, edit ...func(*http.Request)) answer {
	s.t.Helper()
	r, err := http.NewRequestWithContext(testkit.Context(s.t), http.MethodPost, s.url+"/action", strings.NewReader(form.Encode()))
	require.NoError(s.t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for _, e := range edit {
		e(r)
	}
	return s.do(r)
}

// session starts a session of a service.
func (s *site) session(owner string) *concurrency.Session {
	sess, _ := s.Session(&concurrency.SessionOptions{Owner: owner})
	return sess
}

// semaphore returns a semaphore of a service.
func (s *site) semaphore(owner, name string, limit int) *concurrency.Semaphore {
	s.t.Helper()
	sm, err := concurrency.NewSemaphore(s.session(owner), name, limit, nil)
	require.NoError(s.t, err)
	return sm
}

// acquire acquires a permit.
func (s *site) acquire(sm *concurrency.Semaphore, opts ...concurrency.AcquireOption) *concurrency.Permit {
	s.t.Helper()
	p, err := sm.Acquire(testkit.Context(s.t), opts...)
	require.NoError(s.t, err)
	return p
}

// wait has a request wait, and returns when it is the nth that does.
func (s *site) wait(sm *concurrency.Semaphore, n int, opts ...concurrency.AcquireOption) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(testkit.Context(s.t))
	s.t.Cleanup(cancel)
	go func() { _, _ = sm.Acquire(ctx, opts...) }()
	for st, err := range sm.Watch(ctx) {
		require.NoError(s.t, err)
		if len(st.Waiters) >= n {
			return
		}
	}
}

// job runs a job once.
func (s *site) job(name string, err error) *schedlock.Locker {
	s.t.Helper()
	l, e := schedlock.New(s.session("web-7"), nil)
	require.NoError(s.t, e)
	_, got := l.Do(testkit.Context(s.t), name, func(context.Context, *schedlock.Run) error { return err }, schedlock.Every(time.Minute))
	require.ErrorIs(s.t, got, err)
	return l
}

// lose leaves a request whose outcome is unknown.
func (s *site) lose(store, id string) idempotency.Ref {
	s.t.Helper()
	dies, client := s.Session(&concurrency.SessionOptions{Owner: "web-7"})
	st, err := idempotency.NewStore(dies, store, &idempotency.Options{OnLost: idempotency.Refuse})
	require.NoError(s.t, err)
	key := idempotency.Key{Scope: "acme", Op: "POST /payments", ID: id}
	a, _, err := st.Begin(testkit.Context(s.t), key, nil)
	require.NoError(s.t, err)
	lease := dies.Lease()
	require.NoError(s.t, client.Close()) // nothing more is sent: a session that loses its lease takes another one
	if _, err = s.etcd.Revoke(testkit.Context(s.t), lease); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		require.NoError(s.t, err)
	}
	testkit.Closed(s.t, a.Context().Done(), "the attempt is lost")
	return st.Ref(key)
}
