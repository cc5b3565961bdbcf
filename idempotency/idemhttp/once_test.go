package idemhttp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// losing is a provider without keys. It charges with each POST, and loses a connection that was used before in place
// of the answer.
type losing struct {
	url     string
	mu      sync.Mutex
	charges []*http.Request
}

func newLosing(t *testing.T) *losing {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = lis.Close() })
	p := &losing{url: "http://" + lis.Addr().String()}
	go func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return p
}

func (p *losing) serve(c net.Conn) {
	defer c.Close()
	b := bufio.NewReader(c)
	for used := false; ; used = true {
		r, err := http.ReadRequest(b)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Method == http.MethodPost {
			p.mu.Lock()
			p.charges = append(p.charges, r)
			p.mu.Unlock()
			if used {
				return
			}
		}
		_, _ = fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	}
}

// charged returns the POSTs that have arrived since it was called before.
func (p *losing) charged() []*http.Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.charges
	p.charges = nil
	return all
}

// use makes a used connection of the client's, which the next request gets.
func (p *losing) use(t *testing.T, rt http.RoundTripper) {
	t.Helper()
	idle := make(chan error, 1) // net/http may keep the connection a moment after the body has ended
	ctx := httptrace.WithClientTrace(ctxT(t), &httptrace.ClientTrace{PutIdleConn: func(err error) { idle <- err }})
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, nil)
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: rt}).Do(r)
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, resp.Body)
	require.NoError(t, resp.Body.Close())
	require.NoError(t, got(t, idle, "an idle connection"))
}

// V8: net/http repeats a POST with an Idempotency-Key by itself, if a connection that was used before breaks: a
// provider without keys charged twice within one attempt under Refuse, and the second answer was recorded. Transport
// sends such a request once. With TakeOver it leaves it to net/http.
func TestTransportSendsOnceUnderRefuse(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	p := newLosing(t)
	for name, c := range map[string]struct {
		wrapped bool
		body    string
		with    func(*http.Request, *idempotency.Attempt) *http.Request
	}{
		"a body":                  {false, `{"cents":100}`, nil},
		"no body":                 {false, "", nil},
		"behind another, a body":  {true, `{"cents":100}`, nil},
		"behind another, no body": {true, "", nil},
		"a key by hand": {false, "", func(r *http.Request, a *idempotency.Attempt) *http.Request {
			r.Header.Set("X-Idempotency-Key", a.ChildKey("charge"))
			r.Header.Set("Idempotency-Key", a.ChildKey("charge"))
			return r
		}},
		"WithKey": {false, "", func(r *http.Request, a *idempotency.Attempt) *http.Request {
			return r.WithContext(idemhttp.WithKey(r.Context(), a.ChildKey("charge")))
		}},
	} {
		for policy, want := range map[idempotency.LostPolicy]int{idempotency.Refuse: 1, idempotency.TakeOver: 2} {
			direct := &http.Transport{}
			var base http.RoundTripper = direct
			if c.wrapped {
				base = roundTrip(direct.RoundTrip)
			}
			rt := &idemhttp.Transport{Base: base}
			p.use(t, rt)
			id := strings.ReplaceAll(fmt.Sprint(name, policy), " ", "")
			a, _, err := in.Begin(ctxT(t), idempotency.Key{Op: "pay", ID: id}, nil, idempotency.OnLost(policy))
			require.NoError(t, err)
			require.Equal(t, policy == idempotency.Refuse, idempotency.Refuses(a.Context()))
			r, err := http.NewRequestWithContext(a.Context(), http.MethodPost, p.url+"/charge", strings.NewReader(c.body))
			require.NoError(t, err)
			if c.with != nil {
				r = c.with(r, a)
			}
			resp, err := (&http.Client{Transport: rt}).Do(r)
			require.Equal(t, want == 1, err != nil, "%s: %v", name, err)
			if err == nil {
				require.NoError(t, resp.Body.Close())
				require.NotEmpty(t, resp.Request.Header.Get("Idempotency-Key"))
			}
			charges := p.charged()
			require.Len(t, charges, want, "%s, policy %v", name, policy)
			require.NotEmpty(t, charges[0].Header.Get("Idempotency-Key"), name)
			if !c.wrapped {
				require.EqualValues(t, len(c.body), charges[0].ContentLength, name)
			}
			require.NoError(t, a.Release(ctxT(t)))
			direct.CloseIdleConnections()
		}
	}
}

// The same behind a ReverseProxy, whose requests without a body net/http repeats, and within an attempt with TakeOver
// that is itself within one under Refuse.
func TestProxySendsOnceUnderRefuse(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse})
	p := newLosing(t)
	target, err := url.Parse(p.url)
	require.NoError(t, err)
	direct, plain := &http.Transport{}, &http.Transport{}
	defer direct.CloseIdleConnections()
	defer plain.CloseIdleConnections()
	for _, rt := range []http.RoundTripper{&idemhttp.Transport{Base: direct}, plain} {
		proxy := &httputil.ReverseProxy{Transport: rt, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			w.WriteHeader(http.StatusBadGateway)
		}}
		p.use(t, rt)
		r := httptest.NewRequestWithContext(ctxT(t), http.MethodPost, "/charge", nil)
		r.Header.Set("Idempotency-Key", fmt.Sprintf("%T", rt))
		w := httptest.NewRecorder()
		in.middleware(nil)(proxy).ServeHTTP(w, r)
		if rt == plain {
			require.Len(t, p.charged(), 2, "net/http repeats by itself: else this test shows nothing")
			continue
		}
		require.Len(t, p.charged(), 1)
		require.Equal(t, http.StatusBadGateway, w.Code)
	}

	outer, _, err := in.Begin(ctxT(t), idempotency.Key{Op: "outer", ID: "k"}, nil)
	require.NoError(t, err)
	_, err = idempotency.Do(outer.Context(), in.Store, idempotency.Key{Op: "inner", ID: "k"}, nil, func(ctx context.Context, _ *idempotency.Attempt) (int, error) {
		require.True(t, idempotency.Refuses(ctx))
		return 0, nil
	}, idempotency.OnLost(idempotency.TakeOver))
	require.NoError(t, err)
	require.NoError(t, outer.Release(ctxT(t)))
}
