package limithttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// downstream is a service that is called under a limit.
func downstream(t testing.TB, h http.HandlerFunc) (url string, calls *atomic.Int64) {
	t.Helper()
	calls = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		h(w, r)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL, calls
}

// client returns a client whose calls are limited.
func (in instance) calling(o limithttp.Options, base http.RoundTripper) *http.Client {
	in.f.T.Helper()
	if base == nil {
		own := &http.Transport{}
		in.f.T.Cleanup(own.CloseIdleConnections)
		base = own
	}
	rt, err := limithttp.Transport(in, o, base)
	require.NoError(in.f.T, err)
	return &http.Client{Transport: rt}
}

func call(t testing.TB, ctx context.Context, method, url, tenant string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	require.NoError(t, err)
	if tenant != "" {
		r.Header.Set("Tenant", tenant)
	}
	return r
}

// TestTransport: a call holds its permit until its body was read or closed; what is above the limit
// fails, and nothing of it is sent.
func TestTransport(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*http.Response) error{
		"closed": func(r *http.Response) error { return r.Body.Close() },
		"read":   func(r *http.Response) error { _, err := io.Copy(io.Discard, r.Body); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := newInstance(t, 1)
			url, calls := downstream(t, ok)
			c := in.calling(options(), nil)
			resp, err := c.Do(call(t, ctxT(t), http.MethodGet, url, "acme", nil))
			require.NoError(t, err)
			defer resp.Body.Close()
			in.holders("acme", 1)

			body := &closing{Reader: strings.NewReader("a body")}
			_, err = c.Do(call(t, ctxT(t), http.MethodPost, url, "acme", body))
			var full *concurrency.FullError
			require.ErrorAs(t, err, &full)
			require.Equal(t, 1, full.Limit)
			require.True(t, body.closed.Load())
			require.EqualValues(t, 1, calls.Load())

			for _, tenant := range []string{"other", ""} {
				resp, err := c.Do(call(t, ctxT(t), http.MethodGet, url, tenant, nil))
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
			}
			require.NoError(t, end(resp))
			for range 20 {
				resp, err := c.Do(call(t, ctxT(t), http.MethodGet, url, "acme", nil))
				require.NoError(t, err, "it was released")
				require.NoError(t, end(resp))
				require.NoError(t, resp.Body.Close())
			}
			in.f.NoKeys("/key/")
		})
	}
}

type closing struct {
	io.Reader
	closed atomic.Bool
}

func (c *closing) Close() error { c.closed.Store(true); return nil }

// TestTransportReleases: a call without a body, one that fails, one whose context ends and one whose
// base panics release their permits.
func TestTransportReleases(t *testing.T) {
	t.Parallel()
	failed := errors.New("planned")
	for name, c := range map[string]struct {
		method string
		base   http.RoundTripper
		check  func(*testing.T, *http.Response, error, context.CancelFunc)
	}{
		"HEAD": {http.MethodHead, nil, func(t *testing.T, _ *http.Response, err error, _ context.CancelFunc) { require.NoError(t, err) }},
		"fails": {http.MethodGet, roundTripper(func(*http.Request) (*http.Response, error) { return nil, failed }),
			func(t *testing.T, _ *http.Response, err error, _ context.CancelFunc) {
				require.ErrorIs(t, err, failed)
			}},
		"context ends": {http.MethodGet, nil, func(t *testing.T, _ *http.Response, err error, cancel context.CancelFunc) {
			require.NoError(t, err)
			cancel()
		}},
		"panics": {http.MethodGet, roundTripper(func(*http.Request) (*http.Response, error) { panic("planned") }),
			func(t *testing.T, _ *http.Response, err error, _ context.CancelFunc) {
				require.ErrorContains(t, err, "panicked")
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := newInstance(t, 1)
			url, _ := downstream(t, func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusOK)
				if r.Method == http.MethodGet {
					w.(http.Flusher).Flush()
					<-r.Context().Done()
				}
			})
			client := in.calling(options(), c.base)
			ctx, cancel := context.WithCancel(ctxT(t))
			defer cancel()
			resp, err := func() (resp *http.Response, err error) {
				defer func() {
					if p := recover(); p != nil {
						err = fmt.Errorf("panicked: %v", p)
					}
				}()
				return client.Do(call(t, ctx, c.method, url, "acme", nil))
			}()
			if resp != nil {
				defer resp.Body.Close()
			}
			c.check(t, resp, err, cancel)
			in.holders("acme", 0)
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestTransportLost: a call whose permit is lost breaks off, and its error says why.
func TestTransportLost(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	url, _ := downstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	rs := make(reports, 1)
	c := in.calling(options(rs.option, func(o *limithttp.Options) {
		o.Each = func(*http.Request) []concurrency.AcquireOption {
			return []concurrency.AcquireOption{concurrency.ID("flow")}
		}
	}), nil)
	resp, err := c.Do(call(t, ctxT(t), http.MethodGet, url, "acme", nil))
	require.NoError(t, err)
	defer resp.Body.Close()
	require.NoError(t, in.Key("acme").Evict(ctxT(t), "flow", "test"))
	_, err = io.ReadAll(resp.Body)
	require.ErrorIs(t, err, concurrency.ErrEvicted)
	require.ErrorIs(t, testkit.Got(t, rs, "the report"), concurrency.ErrEvicted)
}

// valueless is a context in which package context does not find its own.
type valueless struct{ context.Context }

func (valueless) Value(any) any { return nil }

// TestTransportCause: a call that ends with the request's context has the end and the cause of that, not one of the
// Transport's own.
func TestTransportCause(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	hungUp := errors.New("the caller has hung up")
	for name, tt := range map[string]struct {
		begin      func(context.Context) (ctx context.Context, end func())
		err, cause error
	}{
		"hung up": {func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithCancelCause(ctx)
			return ctx, func() { cancel(hungUp) }
		}, context.Canceled, hungUp},
		"late": {func(ctx context.Context) (context.Context, func()) {
			return context.WithTimeout(ctx, 20*time.Millisecond)
		}, context.DeadlineExceeded, context.DeadlineExceeded},
		"late, by a context of the caller's own": {func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			return valueless{ctx}, cancel
		}, context.DeadlineExceeded, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			for range 50 {
				ctx, end := tt.begin(ctxT(t))
				c := in.calling(options(func(o *limithttp.Options) { o.Key = func(*http.Request) (string, bool) { return name, true } }), roundTripper(func(r *http.Request) (*http.Response, error) {
					if tt.cause == hungUp {
						end()
					}
					<-r.Context().Done()
					require.Equal(t, tt.err, r.Context().Err())
					return nil, context.Cause(r.Context())
				}))
				r := call(t, ctx, http.MethodGet, "http://partner", "", nil)
				_, err := c.Transport.RoundTrip(r)
				require.ErrorIs(t, err, tt.cause)
				end()
				in.holders(name, 0)
			}
		})
	}
}

// TestTransportUpgrade: the connection of a 101 can be written to, and holds its permit until it is
// closed.
func TestTransportUpgrade(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	url, _ := downstream(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, rw := upgrade(t, w)
		defer conn.Close()
		line, _ := rw.ReadString('\n')
		_, _ = conn.Write([]byte("echo " + line))
	})
	r := call(t, ctxT(t), http.MethodGet, url, "acme", nil)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "echo")
	resp, err := in.calling(options(), nil).Do(r)
	require.NoError(t, err)
	conn := resp.Body.(io.ReadWriteCloser)
	_, err = conn.Write([]byte("hello\n"))
	require.NoError(t, err)
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "echo hello\n", line)
	in.holders("acme", 1)
	require.NoError(t, conn.Close())
	in.holders("acme", 0)
}

// TestTransportWaits: a call waits for its turn; one whose context ends frees its place.
func TestTransportWaits(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	p := in.take("acme")
	url, calls := downstream(t, ok)
	c := in.calling(options(wait(time.Hour)), nil)
	do := func(ctx context.Context) <-chan error {
		ch := make(chan error, 1)
		go func() {
			resp, err := c.Do(call(t, ctx, http.MethodGet, url, "acme", nil))
			if err == nil {
				err = resp.Body.Close()
			}
			ch <- err
		}()
		return ch
	}
	ctx, cancel := context.WithCancel(ctxT(t))
	first := do(ctx)
	in.waiters("acme", 1)
	cancel()
	require.ErrorIs(t, testkit.Got(t, first, "the call ends"), context.Canceled)
	in.waiters("acme", 0)
	require.Zero(t, calls.Load())
	second := do(ctxT(t))
	in.waiters("acme", 1)
	require.NoError(t, p.Release(ctxT(t)))
	require.NoError(t, testkit.Got(t, second, "the call"))
}

// TestTransportInAHandler: a handler under a permit that calls under a permit of the same limiter
// gets an error, before both wait for each other.
func TestTransportInAHandler(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	url, calls := downstream(t, ok)
	rs := make(reports, 2)
	c := in.calling(options(wait(time.Hour), rs.option), nil)
	s := in.serve(options(), func(_ http.ResponseWriter, r *http.Request) {
		_, err := c.Do(call(t, r.Context(), http.MethodGet, url, "acme", nil))
		if !errors.Is(err, concurrency.ErrInvalid) {
			t.Error(err)
		}
	})
	require.Equal(t, http.StatusOK, s.get("acme").StatusCode)
	require.ErrorIs(t, testkit.Got(t, rs, "the report"), concurrency.ErrInvalid)
	require.Zero(t, calls.Load())

	_, err := c.Do(call(t, ctxT(t), http.MethodGet, url, "empty", nil))
	require.ErrorIs(t, err, concurrency.ErrInvalid)
	require.ErrorContains(t, err, "Options.Key")
}

// TestTransportOutage: under Closed a call without etcd fails, under Open it is sent, and reported.
func TestTransportOutage(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	url, calls := downstream(t, ok)
	rs := make(reports, 4)
	outage := func(policy limithttp.Outage) *http.Client {
		return in.calling(options(wait(500*time.Millisecond), rs.option, func(o *limithttp.Options) {
			o.Outage, o.Patience = policy, time.Millisecond
		}), nil)
	}
	closed, open := outage(limithttp.Closed), outage(limithttp.Open)
	in.client.Cut()
	_, err := closed.Do(call(t, ctxT(t), http.MethodGet, url, "acme", nil))
	require.ErrorIs(t, err, concurrency.ErrUnavailable)
	require.ErrorIs(t, testkit.Got(t, rs, "the report"), concurrency.ErrUnavailable)
	require.Zero(t, calls.Load())
	resp, err := open.Do(call(t, ctxT(t), http.MethodGet, url, "acme", nil))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.ErrorContains(t, testkit.Got(t, rs, "the report"), "passed without a permit")
	in.client.Heal()
}

// Calls of one model provider run at most two at a time, in all processes together.
func ExampleTransport() {
	ctx := context.Background()
	etcd, err := embedtest.New(ctx, nil) // in a program: clientv3.New
	if err != nil {
		panic(err)
	}
	defer etcd.Close()
	sess, err := concurrency.NewSession(ctx, etcd.Client(), "chat", nil)
	if err != nil {
		panic(err)
	}
	defer sess.Close(ctx)
	lim, err := concurrency.NewKeyedLimiter(sess, "providers", 2, nil)
	if err != nil {
		panic(err)
	}
	limited, err := limithttp.Transport(lim, limithttp.Options{
		Key:  func(r *http.Request) (string, bool) { return r.URL.Hostname(), true },
		Wait: 2 * time.Second,
	}, nil)
	if err != nil {
		panic(err)
	}
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	defer provider.Close()

	client := http.Client{Transport: limited}
	defer client.CloseIdleConnections()
	resp, err := client.Get(provider.URL)
	if err != nil {
		panic(err) // a *concurrency.FullError after two seconds
	}
	defer resp.Body.Close() // the permit is held until here, or until the body was read
	body, err := io.ReadAll(resp.Body)
	fmt.Println(string(body), err)
	// Output: hello <nil>
}
