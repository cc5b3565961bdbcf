package limithttp_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTransportWithoutABody: a response without a body that its caller does not close holds no permit, whichever
// protocol the server has chosen; one with a body holds it until that is closed (A165 in
// internal/proof/tested-failures.md).
func TestTransportWithoutABody(t *testing.T) {
	t.Parallel()
	for protocol, major := range map[string]int{"HTTP/1.1": 1, "HTTP/2": 2} {
		for name, c := range map[string]struct {
			method string
			h      http.HandlerFunc
			holds  bool
		}{
			"HEAD with a length": {http.MethodHead, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "12") }, false},
			"HEAD without":       {http.MethodHead, func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }, false},
			"204":                {http.MethodDelete, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, false},
			"304":                {http.MethodGet, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) }, false},
			"a length of 0":      {http.MethodPost, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "0") }, false},
			"a length of 0, whose stream ends later": {http.MethodGet, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Length", "0")
				w.(http.Flusher).Flush()
				<-r.Context().Done() // of its client's Close
			}, false},
			"a redirect": {http.MethodGet, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "/there")
				w.WriteHeader(http.StatusTemporaryRedirect)
			}, false},
			"a body":            {http.MethodGet, ok, true},
			"of unknown length": {http.MethodGet, func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush(); _, _ = w.Write([]byte("x")) }, true},
			"compressed": {http.MethodGet, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", "gzip")
				_, _ = w.Write(bytes.Repeat([]byte("x"), 100))
			}, true},
		} {
			t.Run(protocol+" "+name, func(t *testing.T) {
				t.Parallel()
				in := newInstance(t, 1)
				s := httptest.NewUnstartedServer(c.h)
				s.EnableHTTP2 = major == 2
				s.StartTLS()
				t.Cleanup(s.Close)
				client := in.calling(options(), s.Client().Transport)
				client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
				resp, err := client.Do(call(t, ctxT(t), c.method, s.URL, "acme", nil))
				require.NoError(t, err)
				require.Equal(t, major, resp.ProtoMajor)
				if c.holds {
					in.holders("acme", 1)
					require.NoError(t, resp.Body.Close())
				}
				in.holders("acme", 0)
				if !c.holds && !strings.HasSuffix(name, "ends later") {
					left, err := io.ReadAll(resp.Body)
					require.NoError(t, err)
					require.Empty(t, left)
				}
				_ = resp.Body.Close()
			})
		}
	}
}

// TestTransportOfItsOwnBase: a response of a RoundTripper that leaves the length out has a body.
func TestTransportOfItsOwnBase(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	client := in.calling(options(), roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("cached"))}, nil
	}))
	resp, err := client.Do(call(t, ctxT(t), http.MethodGet, "http://cache", "acme", nil))
	require.NoError(t, err)
	in.holders("acme", 1)
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "cached", string(b))
	require.NoError(t, resp.Body.Close())
	in.holders("acme", 0)
}

// TestTransportOfANilBody: a RoundTripper may return a response without a Body, or none, as far as http.Client accepts it
// (A261 in internal/proof/tested-failures.md). It holds no permit.
func TestTransportOfANilBody(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	for name, c := range map[string]struct {
		resp *http.Response
		err  string
	}{
		"no body":              {&http.Response{StatusCode: http.StatusNoContent}, ""},
		"a length and no body": {&http.Response{StatusCode: http.StatusOK, ContentLength: 5}, "nil Body"},
		"no response at all":   {nil, "nil *Response"},
		"no body, by HTTP/2":   {&http.Response{StatusCode: http.StatusOK, ProtoMajor: 2}, ""},
		"of an unknown length": {&http.Response{StatusCode: http.StatusOK, ContentLength: -1}, ""},
	} {
		client := in.calling(options(), roundTripper(func(*http.Request) (*http.Response, error) { return c.resp, nil }))
		resp, err := client.Do(call(t, ctxT(t), http.MethodGet, "http://cache", "acme", nil))
		if c.err != "" {
			require.ErrorContains(t, err, c.err, name)
		} else {
			require.NoError(t, err, name)
			b, err := io.ReadAll(resp.Body)
			require.NoError(t, err, name)
			require.Empty(t, b, name)
			require.NoError(t, resp.Body.Close())
		}
		in.holders("acme", 0)
	}
}
