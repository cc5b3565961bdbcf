package idemhttp_test

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// I17: what frames a message is made anew, for HTTP/1.1 and for HTTP/2.
func TestFraming(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	h := in.middleware(nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		w.Header().Set("Keep-Alive", "timeout=5")
		if r.URL.Path == "/chunked" {
			w.Header().Set("Transfer-Encoding", "chunked")
		} else {
			w.Header().Set("Content-Length", "5")
		}
		_, _ = io.WriteString(w, "hello")
	}))
	h1 := in.hosting(nil, h)
	for _, path := range []string{"/chunked", "/sized"} {
		first := h1.post(path, "k", "")
		again := h1.post(path, "k", "")
		require.True(t, again.replayed())
		require.Equal(t, "hello", first.body)
		require.Equal(t, "hello", again.body)
		require.EqualValues(t, 5, again.ContentLength)
		require.Empty(t, again.Header.Get("Keep-Alive"))
	}
	h2 := httptest.NewUnstartedServer(h)
	h2.EnableHTTP2 = true
	h2.StartTLS()
	t.Cleanup(h2.Close)
	for range 2 {
		for _, path := range []string{"/chunked", "/sized"} {
			r, err := http.NewRequestWithContext(ctxT(t), http.MethodPost, h2.URL+path, nil)
			require.NoError(t, err)
			r.Header.Set("Idempotency-Key", `"k"`)
			tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
			resp, err := (&http.Client{Transport: tr}).Do(r)
			require.NoError(t, err)
			b, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, 2, resp.ProtoMajor)
			require.Equal(t, "hello", string(b))
			require.Equal(t, "true", resp.Header.Get("Idempotent-Replayed"))
			resp.Body.Close()
			tr.CloseIdleConnections()
		}
	}
}

// I17: a length that was in the headers before the middleware is not that of a replay.
func TestLengthOfAReplay(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	mw := in.middleware(nil)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello")
	}))
	s := in.hosting(nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if length := r.Header.Get("Length"); length != "" {
			w.Header().Set("Content-Length", length)
		}
		mw.ServeHTTP(w, r)
	}))
	require.Equal(t, "hello", s.post("/", "k", "").body)
	for _, length := range []string{"3", "99"} {
		again := s.post("/", "k", "", header("Length", length))
		require.True(t, again.replayed())
		require.Equal(t, "hello", again.body)
		require.EqualValues(t, 5, again.ContentLength)
	}
}

// I17: a handler that writes more than its Content-Length gets an error, and the first client and the
// duplicates get the same as from a server without the Middleware: the part before.
func TestLongerThanDeclared(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	h := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "5")
		_, err := io.WriteString(w, "hello")
		require.NoError(t, err)
		if r.URL.Path == "/flushed" {
			w.(http.Flusher).Flush()
		}
		for range 2 {
			n, err := io.WriteString(w, " world")
			require.Zero(t, n)
			require.ErrorIs(t, err, http.ErrContentLength)
		}
		_, err = w.Write(nil)
		require.NoError(t, err)
	}
	bare, guarded := in.hosting(nil, http.HandlerFunc(h)), in.serve(nil, h)
	for _, path := range []string{"/", "/flushed"} {
		want := bare.post(path, "", "body")
		require.Equal(t, "hello", want.body)
		for range 2 {
			re := guarded.post(path, "k", "body")
			for re.StatusCode == http.StatusConflict { // the client has all of it before the handler has returned
				re = guarded.post(path, "k", "body")
			}
			require.Equal(t, "hello", re.body)
			require.EqualValues(t, 5, re.ContentLength)
		}
	}
	require.EqualValues(t, 2, guarded.calls.Load())
}

// I17: a body that is shorter than its declared length has broken off. The client sees that,
// as it does without the middleware, and no duplicate gets a replay that looks whole: the
// attempt is lost. Who knows that the work was done can say it.
func TestShorterThanDeclared(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse})
	var reported atomic.Int64
	h := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "50")
		w.Header().Set("Location", "/payments/1")
		switch r.URL.Path {
		case "/too-much-at-once":
			_, err := io.WriteString(w, strings.Repeat("x", 51))
			require.ErrorIs(t, err, http.ErrContentLength)
		case "/flushed":
			_, _ = io.WriteString(w, "half of it")
			w.(http.Flusher).Flush()
		case "/done":
			_, _ = io.WriteString(w, "half of it")
			idemhttp.Decide(r.Context(), idempotency.Remember)
		case "/failed":
			w.WriteHeader(http.StatusInternalServerError)
		default:
			_, _ = io.WriteString(w, "half of it")
		}
	}
	bare := in.hosting(nil, http.HandlerFunc(h))
	s := in.serve(&idemhttp.Options{ReportError: func(_ *http.Request, err error) {
		if !errors.Is(err, idempotency.ErrUnknown) { // of the duplicates
			reported.Add(1)
		}
	}}, h)
	for _, path := range []string{"/", "/flushed", "/too-much-at-once", "/done", "/failed"} {
		want, err := bare.send(bare.request(path, "", "body"))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		re, err := s.send(s.request(path, "k", "body"))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, path)
		require.Equal(t, want.StatusCode, re.StatusCode)
		require.Equal(t, want.body, re.body)
		switch path {
		case "/done":
			again := s.post(path, "k", "body")
			require.True(t, again.replayed())
			require.Equal(t, "true", again.Header.Get("Idempotency-Body-Omitted"))
			require.Equal(t, "/payments/1", again.Header.Get("Location"))
			require.Empty(t, again.Header.Get("Content-Type")+again.body)
		default:
			require.Equal(t, idemhttp.CodeUnknown, s.post(path, "k", "body").problem(t).Code)
		}
	}
	require.EqualValues(t, 5, s.calls.Load())
	require.EqualValues(t, 4, reported.Load())
}

// I17: no length is added to what says itself how it is framed: net/http complains of a
// length beside a Transfer-Encoding, and sends no trailers after a body with a length.
func TestFramingOfTheHandler(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	var complaints strings.Builder
	h := httptest.NewUnstartedServer(in.middleware(nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, value, _ := strings.Cut(r.URL.RawQuery, "=")
		w.Header().Set(name, value)
		_, _ = io.WriteString(w, "hello")
	})))
	h.Config.ErrorLog = log.New(&complaints, "", 0)
	h.Start()
	defer h.Close()
	s := server{h, t, nil}
	require.Equal(t, "hello", s.post("/?Transfer-Encoding=chunked", "k1", "").body)
	for range 2 {
		re := s.post("/?Trailer=Unset", "k2", "")
		require.Equal(t, "hello", re.body)
		require.Equal(t, http.Header{"Unset": nil}, re.Trailer)
		require.EqualValues(t, -1, re.ContentLength)
	}
	h.Close()
	require.Empty(t, complaints.String())
}

func TestTrailers(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s := f.instance(nil, nil).serve(nil, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Checksum, Other")
		w.Header().Add("Trailer", "Unset")
		_, _ = io.WriteString(w, "hello")
		w.Header().Set("Checksum", "abc")
		w.Header().Set("Other", "x")
		w.Header().Add("Other", "y")
		w.Header().Set(http.TrailerPrefix+"Late", "z")
		w.Header().Set("No-Trailer", "set too late")
	})
	first, again := twice(t, s, "k")
	require.Equal(t, http.Header{"Checksum": {"abc"}, "Other": {"x", "y"}, "Late": {"z"}, "Unset": nil}, first.Trailer)
	require.NotContains(t, first.Header, "No-Trailer")
	same(t, first, again)
}

// I17: trailers that were not announced reach the first client and the duplicates over HTTP/1.1, too:
// from a handler that flushes, from one that does not, and from one behind a ReverseProxy.
func TestTrailersWithoutNotice(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	h := func(flush bool, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(http.TrailerPrefix+"Early", "1")
			_, _ = io.WriteString(w, body)
			if flush {
				w.(http.Flusher).Flush()
			}
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		}
	}
	backend := in.hosting(nil, h(true, "hello"))
	to, err := url.Parse(backend.URL)
	require.NoError(t, err)
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.Transport = tr
	for name, h := range map[string]http.HandlerFunc{
		"flushed": h(true, "hello"), "at once": h(false, "hello"), "without a body": h(false, ""),
		"large": h(false, strings.Repeat("x", 10<<10)), "behind a proxy": proxy.ServeHTTP,
	} {
		t.Run(name, func(t *testing.T) {
			first, again := twice(t, in.serve(nil, h), strings.ReplaceAll(name, " ", "-"))
			require.Equal(t, http.Header{"Early": {"1"}, "Grpc-Status": {"0"}}, first.Trailer)
			same(t, first, again)
		})
	}
}

// I17: a response to HEAD, where HEAD needs keys, has the Content-Length that the handler has set, if
// any. (net/http removes that of a 304.)
func TestHead(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	h := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		switch r.URL.Path {
		case "/said":
			w.Header().Set("Content-Length", "1234")
		case "/written":
			_, _ = io.WriteString(w, "hello")
		case "/too-much":
			_, _ = io.WriteString(w, strings.Repeat("x", 2<<20))
		case "/not-modified":
			w.Header().Set("Content-Length", "1234")
			w.WriteHeader(http.StatusNotModified)
		}
	}
	mw := in.middleware(&idemhttp.Options{Methods: []string{"HEAD", "POST"}})(http.HandlerFunc(h))
	guarded := in.hosting(nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if length := r.Header.Get("Length"); length != "" {
			w.Header().Set("Content-Length", length) // of a handler in front of a replay
		}
		mw.ServeHTTP(w, r)
	}))
	for path, want := range map[string]string{"/": "", "/said": "1234", "/written": "5", "/too-much": "", "/not-modified": ""} {
		head := func(r *http.Request) { r.Method = http.MethodHead }
		if path == "/not-modified" {
			head = func(*http.Request) {}
		}
		first, again := twice(t, guarded, path, func(r *http.Request) { r.URL.Path = path }, head)
		require.Equal(t, want, first.Header.Get("Content-Length"), path)
		again.Header.Del("Idempotency-Body-Omitted")
		if path == "/too-much" {
			first.Header.Del("Content-Type")
		}
		same(t, first, again)
		require.Empty(t, again.body)
		again = guarded.post(path, path, "body", head, header("Length", "99"))
		require.True(t, again.replayed())
		require.Equal(t, want, again.Header.Get("Content-Length"), path)
	}
}
