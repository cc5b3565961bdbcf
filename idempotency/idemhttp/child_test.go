package idemhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// provider answers requests by their path, and notes their keys.
type provider struct{ keys []string }

func (p *provider) RoundTrip(r *http.Request) (*http.Response, error) {
	p.keys = append(p.keys, r.Header.Get("Idempotency-Key"))
	resp := &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("ok")), Request: r, Header: http.Header{}}
	switch r.URL.Path {
	case "/down":
		return nil, io.ErrUnexpectedEOF
	case "/busy":
		resp.StatusCode = http.StatusServiceUnavailable
	case "/cut":
		resp.Body = io.NopCloser(io.MultiReader(strings.NewReader("o"), atEnd(func() {}), brokenReader{}))
	case "/moved":
		resp.StatusCode = http.StatusPermanentRedirect
		resp.Header.Set("Location", "/down")
	}
	return resp, nil
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

// I33: what a handler sends within its attempt has the same keys in the attempt that takes over, and
// when it is tried again. The caller's own key counts more.
func TestTransportWithinAnAttempt(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	begin := func(id string) *idempotency.Attempt {
		a, _, err := in.Begin(ctxT(t), idempotency.Key{Op: "pay", ID: id}, nil)
		require.NoError(t, err)
		return a
	}
	p := &provider{}
	c := &http.Client{Transport: &idemhttp.Transport{Base: p}}
	// sent returns the key, or those, that a request had.
	sent := func(a *idempotency.Attempt, path, body string, ws ...with) string {
		r, err := http.NewRequestWithContext(a.Context(), http.MethodPost, "http://pay.test"+path, strings.NewReader(body))
		require.NoError(t, err)
		for _, w := range ws {
			w(r)
		}
		p.keys = nil
		if resp, err := c.Do(r); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			require.NoError(t, resp.Body.Close())
		}
		return strings.Join(p.keys, " ")
	}
	a := begin("k")
	first, again, other := sent(a, "/charge", "1"), sent(a, "/charge", "1"), sent(a, "/charge", "2")
	elsewhere, shop := sent(a, "/refund", "1"), sent(a, "/charge", "1", host("shop.test"))
	all := map[string]bool{first: true, again: true, other: true, elsewhere: true, shop: true}
	require.Len(t, all, 5)
	for _, path := range []string{"/down", "/busy", "/cut", "/moved"} {
		key := sent(a, path, "1")
		require.Equal(t, key, sent(a, path, "1"), path)
		if path == "/moved" {
			require.Len(t, p.keys, 2)
			require.Equal(t, p.keys[0], p.keys[1], "a redirect is the same request")
		}
	}
	require.NoError(t, a.Abandon(ctxT(t)))

	a = begin("k")
	require.Equal(t, 2, a.Attempt())
	require.Equal(t, []string{other, first, again, elsewhere}, []string{
		sent(a, "/charge", "2"), sent(a, "/charge", "1"), sent(a, "/charge", "1"), sent(a, "/refund", "1")})
	require.NotContains(t, all, sent(a, "/charge", "1"), "a third one")
	require.Equal(t, "mine", sent(a, "/charge", "1", header("Idempotency-Key", "mine")))
	own := func(r *http.Request) { *r = *r.WithContext(idemhttp.WithKey(r.Context(), a.ChildKey("charge"))) }
	require.Equal(t, `"`+a.ChildKey("charge")+`"`, sent(a, "/charge", "1", own))
	require.NoError(t, a.Release(ctxT(t)))

	b := begin("another")
	require.NotContains(t, all, sent(b, "/charge", "1"))
	require.NoError(t, b.Release(ctxT(t)))
}

// Methods get a key however they are written.
func TestTransportMethodsAsWritten(t *testing.T) {
	t.Parallel()
	base := &seenBy{}
	r := httptest.NewRequest(http.MethodPost, "http://pay.test/", strings.NewReader("x"))
	_, err := (&idemhttp.Transport{Base: base, Methods: []string{"post"}}).RoundTrip(r)
	require.NoError(t, err)
	require.NotEmpty(t, base.keys[0])
}

// A96: a request of an attempt whose body can be read only once cannot be compared with that of the
// attempt that takes over. It is refused before it is sent, unless its caller gives it a key.
func TestTransportOfABodyThatIsReadOnce(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	a, _, err := in.Begin(ctxT(t), idempotency.Key{Op: "pay", ID: "k"}, nil)
	require.NoError(t, err)
	p := &provider{}
	send := func(ctx context.Context, body io.Reader) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://pay.test/charge", body)
		require.NoError(t, err)
		resp, err := (&idemhttp.Transport{Base: p}).RoundTrip(r)
		if err == nil {
			require.NoError(t, resp.Body.Close())
		}
		return err
	}
	closed := make(chan struct{})
	once := struct {
		io.Reader
		io.Closer
	}{strings.NewReader("1"), closer(closed)}
	err = send(a.Context(), once)
	for _, part := range []string{"POST pay.test/charge", "GetBody", "WithKey", "Attempt.ChildKey"} {
		require.ErrorContains(t, err, part)
	}
	require.NotContains(t, err.Error(), "\n")
	got(t, closed, "the body to be closed")
	require.Empty(t, p.keys)

	require.NoError(t, send(a.Context(), nil), "no body can be read again")
	require.NoError(t, send(idemhttp.WithKey(a.Context(), a.ChildKey("charge")), io.NopCloser(strings.NewReader("1"))))
	require.NoError(t, send(ctxT(t), io.NopCloser(strings.NewReader("1"))), "not within an attempt")
	require.Len(t, p.keys, 3)
	require.NoError(t, a.Release(ctxT(t)))
}

// closer closes a channel.
type closer chan struct{}

func (c closer) Close() error {
	close(c)
	return nil
}

// rewinding is a body whose copies are the body itself, from its beginning: those of connect-go.
type rewinding struct{ *strings.Reader }

func (rewinding) Close() error { return nil }

// The body that is sent is whole, also if GetBody rewinds it.
func TestTransportRewindsTheBody(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	a, _, err := in.Begin(ctxT(t), idempotency.Key{Op: "pay", ID: "k"}, nil)
	require.NoError(t, err)
	body := rewinding{strings.NewReader("one body")}
	r, err := http.NewRequestWithContext(a.Context(), http.MethodPost, "http://pay.test/", body)
	require.NoError(t, err)
	r.GetBody = func() (io.ReadCloser, error) {
		_, err := body.Seek(0, io.SeekStart)
		return body, err
	}
	var sent []byte
	base := roundTrip(func(r *http.Request) (*http.Response, error) {
		sent, err = io.ReadAll(r.Body)
		return &http.Response{StatusCode: 200, Body: http.NoBody, Request: r, Header: http.Header{}}, err
	})
	_, err = (&idemhttp.Transport{Base: base}).RoundTrip(r)
	require.NoError(t, err)
	require.Equal(t, "one body", string(sent))
	require.NoError(t, a.Release(ctxT(t)))
}

// A464: a request that failed within Transport, or in which Base panicked, used up its key: its retry had another one, and
// so had the attempt that takes over. It has one key until it has an answer.
func TestTransportKeepsTheKeyOfARequestWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	keys := map[string][]string{}
	for range 2 {
		a, _, err := in.Begin(ctxT(t), idempotency.Key{Op: "pay", ID: "k"}, nil)
		require.NoError(t, err)
		for name, bad := range map[string]struct {
			copies int // of the body that can be had
			panics bool
		}{"a body that cannot be read again": {copies: 1}, "a panic": {copies: 2, panics: true}} {
			send := func(copies int, panics bool) {
				r, err := http.NewRequestWithContext(a.Context(), http.MethodPost, "http://pay.test/"+strings.ReplaceAll(name, " ", "-"), strings.NewReader("1"))
				require.NoError(t, err)
				r.GetBody = func() (io.ReadCloser, error) {
					if copies--; copies < 0 {
						return nil, io.ErrUnexpectedEOF
					}
					return io.NopCloser(strings.NewReader("1")), nil
				}
				defer func() { require.Equal(t, panics, recover() != nil) }()
				_, err = (&idemhttp.Transport{Base: roundTrip(func(r *http.Request) (*http.Response, error) {
					if panics {
						panic("a bug in Base")
					}
					keys[name] = append(keys[name], r.Header.Get("Idempotency-Key"))
					return &http.Response{StatusCode: 200, Body: http.NoBody, Request: r, Header: http.Header{}}, nil
				})}).RoundTrip(r)
				require.Equal(t, copies < 0, err != nil)
			}
			if a.Attempt() == 1 {
				send(bad.copies, bad.panics)
			}
			send(2, false)
		}
		require.NoError(t, a.Abandon(ctxT(t)))
	}
	require.Len(t, keys, 2)
	for name, k := range keys {
		require.Len(t, k, 2)
		require.Equal(t, k[0], k[1], name)
	}
}
