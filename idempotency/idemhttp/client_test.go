package idemhttp_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// seenBy collects the requests that come through, and lets some of them fail.
type seenBy struct {
	keys []string
	fail int // so many at first
}

func (s *seenBy) RoundTrip(r *http.Request) (*http.Response, error) {
	s.keys = append(s.keys, strings.Join(r.Header.Values("Idempotency-Key"), "|"))
	resp := &http.Response{StatusCode: 200, Body: http.NoBody, Request: r, Header: http.Header{}}
	if s.fail--; s.fail >= 0 {
		return nil, io.ErrUnexpectedEOF
	}
	if r.URL.Path == "/moved" {
		resp.StatusCode = http.StatusPermanentRedirect
		resp.Header.Set("Location", "/here")
	}
	return resp, nil
}

func TestTransport(t *testing.T) {
	t.Parallel()
	base := &seenBy{}
	c := &http.Client{Transport: &idemhttp.Transport{Base: base}}
	post := func(r *http.Request) error {
		resp, err := c.Do(r)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	request := func(method, path string) *http.Request {
		r, err := http.NewRequestWithContext(ctxT(t), method, "http://pay.test"+path, strings.NewReader("x"))
		require.NoError(t, err)
		return r
	}
	keys := func() []string { k := base.keys; base.keys = nil; return k }

	// A new key for each request, in quotes; none where none is needed.
	r := request("POST", "/")
	require.NoError(t, post(r))
	require.Empty(t, r.Header, "the caller's request is left as it is")
	require.NoError(t, post(request("PATCH", "/")))
	require.NoError(t, post(request("PUT", "/")))
	k := keys()
	require.Regexp(t, `^"\w{26}"$`, k[0])
	require.Regexp(t, `^"\w{26}"$`, k[1])
	require.NotEqual(t, k[0], k[1])
	require.Empty(t, k[2])

	// The caller's own is left alone.
	r = request("POST", "/")
	r.Header.Set("Idempotency-Key", "mine")
	require.NoError(t, post(r))
	require.Equal(t, []string{"mine"}, keys())

	// One context, one key.
	base.fail = 2
	ctx := idemhttp.WithNewKey(ctxT(t))
	for range 2 {
		require.Error(t, post(request("POST", "/").WithContext(ctx)))
	}
	require.NoError(t, post(request("POST", "/").WithContext(ctx)))
	k = keys()
	require.Len(t, k, 3)
	require.Equal(t, k[0], k[1])
	require.Equal(t, k[0], k[2])
	own, ok := idemhttp.KeyOf(ctx)
	require.True(t, ok)
	require.Equal(t, `"`+own+`"`, k[0])

	require.NoError(t, post(request("POST", "/").WithContext(idemhttp.WithKey(ctx, `a"b\c`))))
	require.Equal(t, []string{`"a\"b\\c"`}, keys())
	for _, bad := range []string{"", "ä", "a\nb", strings.Repeat("x", 256)} {
		require.Error(t, post(request("POST", "/").WithContext(idemhttp.WithKey(ctx, bad))), bad)
	}
	require.Empty(t, keys())

	// A redirect is the same request.
	require.NoError(t, post(request("POST", "/moved")))
	k = keys()
	require.Len(t, k, 2)
	require.Equal(t, k[0], k[1])

	// Other methods, another header.
	c.Transport = &idemhttp.Transport{Base: base, Methods: []string{"PUT"}, Header: "X-Key"}
	r = request("PUT", "/")
	require.NoError(t, post(r))
	require.Equal(t, []string{""}, keys())
}

// Both halves: an answer that was lost, and the request sent again.
func TestTransportAndMiddleware(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s := f.instance(nil, nil).serve(nil, paid)
	c := &http.Client{Transport: &idemhttp.Transport{Base: s.Client().Transport}}
	ctx := idemhttp.WithNewKey(ctxT(t))
	for n := range 3 {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/payments", strings.NewReader("body"))
		require.NoError(t, err)
		resp, err := c.Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, n > 0, resp.Header.Get("Idempotent-Replayed") == "true")
	}
	require.EqualValues(t, 1, s.calls.Load())
}
