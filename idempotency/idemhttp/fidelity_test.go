package idemhttp_test

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// twice sends a request two times, and returns what must be a response and its replay. What
// the two may differ in is taken away.
func twice(t testing.TB, s server, key string, ws ...with) (first, again reply) {
	t.Helper()
	first = s.post("/", key, "body", ws...)
	require.False(t, first.replayed())
	again = s.post("/", key, "body", ws...)
	require.True(t, again.replayed())
	for _, re := range []reply{first, again} {
		re.Header.Del("Date")
		re.Header.Del("Idempotent-Replayed")
	}
	return first, again
}

func same(t testing.TB, first, again reply) {
	t.Helper()
	require.Equal(t, first.StatusCode, again.StatusCode)
	require.Equal(t, first.Header, again.Header)
	require.Equal(t, first.Trailer, again.Trailer)
	require.Equal(t, first.ContentLength, again.ContentLength)
	require.Equal(t, first.TransferEncoding, again.TransferEncoding)
	require.Equal(t, first.body, again.body)
}

// T18: headers with several values, commas and bytes of all kinds come back as they were.
func TestHeaders(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s := f.instance(nil, nil).serve(nil, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Add("Link", `<a>; rel="x, y"`)
		h.Add("Link", `<b>; rel=next`)
		h.Set("Content-Disposition", `attachment; filename="a, b; c.txt"`)
		h["Warning"] = []string{"199 - \"caf\xe9\"", ""}
		h.Set("Etag", `"v1"`)
		h.Set("Location", "/payments/1")
		h.Set("X-Colon", "a: b: c")
		h["x-lower"] = []string{"kept"}
		h["Content-Type"] = nil // keeps net/http from guessing one
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "<html>")
	})
	first, again := twice(t, s, "k")
	same(t, first, again)
	require.Len(t, again.Header.Values("Link"), 2)
	require.Equal(t, []string{"199 - \"caf\xe9\"", ""}, again.Header.Values("Warning"))
	require.NotContains(t, again.Header, "Content-Type")
	require.Equal(t, `"v1"`, again.Header.Get("Etag"))
}

// What net/http guesses is guessed once.
func TestGuessedType(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	for name, h := range map[string]http.HandlerFunc{
		"html": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"flushed early": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "<")
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, "html>")
		},
		"many writes": func(w http.ResponseWriter, _ *http.Request) {
			for range 5000 {
				_, _ = io.WriteString(w, "x")
			}
		},
		"nothing": func(http.ResponseWriter, *http.Request) {},
		"204":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
	} {
		t.Run(name, func(t *testing.T) {
			first, again := twice(t, in.serve(nil, h), `"`+name+`"`)
			require.Equal(t, first.Header.Values("Content-Type"), again.Header.Values("Content-Type"))
			require.Equal(t, first.StatusCode, again.StatusCode)
			require.Equal(t, first.body, again.body)
		})
	}
}

// T19: cookies and credentials reach the first client, and no other; nor does what the
// options name.
func TestSecretsAreNotStored(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	secret := []string{"Set-Cookie", "Set-Cookie2", "Www-Authenticate", "Proxy-Authenticate", "Authorization",
		"Proxy-Authorization", "Authentication-Info", "Proxy-Authentication-Info", "X-Csrf-Token"}
	s := in.serve(&idemhttp.Options{NeverStore: []string{"x-csrf-token", "Set-Cookie"}}, func(w http.ResponseWriter, r *http.Request) {
		for _, name := range secret {
			w.Header().Set(name, "s3cr3t")
		}
		w.Header().Set("Trailer", "X-Csrf-Token")
		_, _ = io.WriteString(w, "body")
		w.Header().Set(http.TrailerPrefix+"Set-Cookie", "s3cr3t")
	})
	first, again := twice(t, s, "k")
	for _, name := range secret[:8] {
		require.NotEmpty(t, first.Header.Get(name), name)
		require.Empty(t, again.Header.Get(name), name)
	}
	require.NotContains(t, strings.Join(f.values(), "\n"), "s3cr3t")
	for _, values := range again.Trailer {
		require.NotContains(t, values, "s3cr3t")
	}
}

// T17: what frames a message is made anew, for HTTP/1.1 and for HTTP/2.
func TestFraming(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	h := idemhttp.Middleware(in.Store, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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

// T17: a length that stood in the headers before the middleware is not that of a replay.
func TestLengthOfAReplay(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	mw := idemhttp.Middleware(in.Store, nil)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
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

// T17: who writes more than the length that he has declared is told, and the first client and
// the duplicates get what a server without the middleware sends: what was written before.
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

// T17: a body that is shorter than its declared length has broken off. The client sees that,
// as it does without the middleware, and no duplicate gets a replay that looks whole: the
// attempt is lost. Who knows that the work was done can say it.
func TestShorterThanDeclared(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, &idempotency.Options{SingleTenant: true, Orphan: idempotency.Refuse})
	var told atomic.Int64
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
	s := in.serve(&idemhttp.Options{OnError: func(*http.Request, error) { told.Add(1) }}, h)
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
		case "/failed": // the key is free, as after any such status
			_, err := s.send(s.request(path, "k", "body"))
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		default:
			require.Equal(t, idemhttp.CodeUnknown, s.post(path, "k", "body").problem(t).Code)
		}
	}
	require.EqualValues(t, 6, s.calls.Load())
	require.EqualValues(t, 3, told.Load())
}

// T17: no length is added to what says itself how it is framed: net/http complains of a
// length beside a Transfer-Encoding, and sends no trailers after a body with a length.
func TestFramingOfTheHandler(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	var complaints strings.Builder
	h := httptest.NewUnstartedServer(idemhttp.Middleware(in.Store, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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

// T16: a compressed response keeps its coding; who cannot read it gets it unpacked.
func TestCompressedBehindTheMiddleware(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s := f.instance(nil, nil).serve(nil, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/plain")
		h.Add("Vary", "Accept-Encoding")
		h.Set("Etag", `"v1"`)
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			h.Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = io.WriteString(z, "hello")
			_ = z.Close()
			return
		}
		_, _ = io.WriteString(w, "hello")
	})
	first := s.post("/", "k", "", header("Accept-Encoding", "gzip, br"))
	require.Equal(t, "gzip", first.Header.Get("Content-Encoding"))
	for _, takes := range []string{"gzip", "br, GZIP;q=0.5", "*"} {
		re := s.post("/", "k", "", header("Accept-Encoding", takes))
		require.True(t, re.replayed())
		require.Equal(t, first.body, re.body, takes)
		require.Equal(t, "gzip", re.Header.Get("Content-Encoding"))
		require.Equal(t, `"v1"`, re.Header.Get("Etag"))
	}
	for _, takes := range []string{"identity", "br", "gzip;q=0", "", "*;q=0", "gzip;q=0, *"} {
		re := s.post("/", "k", "", header("Accept-Encoding", takes))
		require.True(t, re.replayed())
		require.Equal(t, "hello", re.body, takes)
		require.Empty(t, re.Header.Get("Content-Encoding"))
		require.Equal(t, `W/"v1"`, re.Header.Get("Etag"))
		require.EqualValues(t, 5, re.ContentLength)
	}
	plain := s.post("/", "k2", "", header("Accept-Encoding", "identity"))
	re := s.post("/", "k2", "", header("Accept-Encoding", "gzip"))
	require.True(t, re.replayed())
	require.Equal(t, plain.body, re.body)
	require.Empty(t, re.Header.Get("Content-Encoding"))
}

// What compresses in front of the middleware does so for each client.
func TestCompressedBeforeTheMiddleware(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	mw := idemhttp.Middleware(in.Store, nil)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello")
	}))
	s := in.hosting(nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "gzip" {
			mw.ServeHTTP(w, r)
			return
		}
		inner := httptest.NewRecorder()
		mw.ServeHTTP(inner, r)
		for name, values := range inner.Header() {
			w.Header()[name] = values
		}
		w.Header().Del("Content-Length")
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = z.Write(inner.Body.Bytes())
		_ = z.Close()
	}))
	for _, takes := range []string{"gzip", "identity", "gzip"} {
		re := s.post("/", "k", "", header("Accept-Encoding", takes))
		if takes == "gzip" {
			z, err := gzip.NewReader(bytes.NewReader([]byte(re.body)))
			require.NoError(t, err)
			b, err := io.ReadAll(z)
			require.NoError(t, err)
			re.body = string(b)
		}
		require.Equal(t, "hello", re.body)
	}
}

// What stands in the headers before the handler is of this request, and is not stored.
func TestHeadersOfOthers(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	mw := idemhttp.Middleware(in.Store, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.NotEmpty(t, w.Header().Get("X-Request-Id"), "the handler sees them")
		w.Header().Del("X-Powered-By")
		w.Header().Del("Content-Type")
		w.Header().Del("Set-Cookie")
		w.Header().Add("Vary", "Accept")
		paid(w, r)
	}))
	s := in.hosting(nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", r.Header.Get("Id"))
		w.Header().Set("X-Powered-By", "us")
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Set-Cookie", "of=this client")
		w.Header().Set("Vary", "Origin")
		mw.ServeHTTP(w, r)
	}))
	first := s.post("/", "k", "", header("Id", "1"))
	again := s.post("/", "k", "", header("Id", "2"))
	for _, re := range []reply{first, again} {
		require.NotContains(t, re.Header, "X-Powered-By", "the handler has removed it")
		require.Equal(t, "text/plain; charset=utf-8", re.Header.Get("Content-Type"))
	}
	require.NotContains(t, first.Header, "Set-Cookie")
	require.Equal(t, "of=this client", again.Header.Get("Set-Cookie"), "nothing is recorded of it")
	require.Equal(t, "1", first.Header.Get("X-Request-Id"))
	require.Equal(t, "2", again.Header.Get("X-Request-Id"))
	require.Equal(t, []string{"Origin", "Accept"}, again.Header.Values("Vary"))
	require.NotContains(t, strings.Join(f.values(), ""), "X-Request-Id")
}

// T25: hints go to the first client at once and are not stored; a second status counts for
// nothing; no status is 200; and one that is none panics, as in net/http.
func TestStatus(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	s := in.serve(nil, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusProcessing)
		w.Header().Set("Late", "yes")
		w.WriteHeader(http.StatusCreated)
		w.WriteHeader(http.StatusBadRequest)
		w.Header().Set("Later", "no")
		_, _ = io.WriteString(w, "hello")
	})
	var hints []int
	traced := func(r *http.Request) {
		*r = *r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			hints = append(hints, code)
			require.Equal(t, "</style.css>; rel=preload", h.Get("Link"))
			require.Empty(t, h.Get("Late"))
			return nil
		}}))
	}
	first, again := twice(t, s, "k", traced)
	require.Equal(t, []int{103, 102}, hints, "the first client's, once")
	require.Equal(t, http.StatusCreated, first.StatusCode)
	require.Equal(t, "yes", again.Header.Get("Late"))
	require.Empty(t, first.Header.Get("Later"))
	same(t, first, again)

	first, again = twice(t, in.serve(nil, func(http.ResponseWriter, *http.Request) {}), "k2")
	require.Equal(t, http.StatusOK, first.StatusCode)
	same(t, first, again)

	first, again = twice(t, in.serve(nil, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
		_, err := io.WriteString(w, "x")
		require.ErrorIs(t, err, http.ErrBodyNotAllowed)
	}), "k3")
	same(t, first, again)

	bad := in.serve(nil, func(w http.ResponseWriter, _ *http.Request) {
		defer func() {
			require.NotNil(t, recover())
			w.WriteHeader(http.StatusTeapot)
		}()
		w.WriteHeader(0)
	})
	require.Equal(t, http.StatusTeapot, bad.post("/", "k4", "").StatusCode)
}

// T17: an answer to HEAD, for whoever has keys there, has the length that the handler has said,
// if any. (Of a 304 net/http takes it away.)
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
	mw := idemhttp.Middleware(in.Store, &idemhttp.Options{Methods: []string{"HEAD", "POST"}})(http.HandlerFunc(h))
	guarded := in.hosting(nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if length := r.Header.Get("Length"); length != "" {
			w.Header().Set("Content-Length", length) // of who stands in front of a replay
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

// The form in which responses are stored, as the first release has written it.
func TestGolden(t *testing.T) {
	t.Parallel()
	res := idemhttp.Response{
		Status: 201, Header: http.Header{"Location": {"/orders/1"}, "Link": {"a", "b"}, "Content-Type": nil, "Bad\n": {"x"}, "Two": {"a\r\nb"}},
		Trailer: http.Header{"Checksum": {"abc"}}, Body: []byte("the\n\nbody\xff"),
	}
	const golden = "idemhttp 1 201 -\nn Content-Type\nh Link: a\nh Link: b\nh Location: /orders/1\nh Two: a  b\nt Checksum: abc\n\nthe\n\nbody\xff"
	require.Equal(t, golden, string(res.Encode()))
	back, err := idemhttp.Decode([]byte(golden))
	require.NoError(t, err)
	delete(res.Header, "Bad\n")
	res.Header.Set("Two", "a  b")
	require.Equal(t, &res, back)

	for text, want := range map[string]idemhttp.Response{
		"idemhttp 1 200 omitted\n\n":                 {Status: 200, Header: http.Header{}, Omitted: true, Body: []byte{}},
		"idemhttp 1 0 hijacked\n\n":                  {Header: http.Header{}, Hijacked: true, Body: []byte{}},
		"idemhttp 1 200 - later\nz Later: x\n\nbody": {Status: 200, Header: http.Header{}, Body: []byte("body")},
	} {
		back, err := idemhttp.Decode([]byte(text))
		require.NoError(t, err, text)
		require.Equal(t, &want, back)
	}
	for _, bad := range []string{
		"", "\n", "{}", "idemhttp", "idemhttp 1", "idemhttp 2 200 -\n\n", "idemhttp 1 200\n\n", "idemhttp 1 x -\n\n",
		"idemhttp 1 99 -\n\n", "idemhttp 1 103 -\n\n", "idemhttp 1 1000 -\n\n", "idemhttp 1 200 -\n", "idemhttp 1 200 -\nh A: b", "idemhttp 1 200 -\nh\n\n",
	} {
		_, err := idemhttp.Decode([]byte(bad))
		require.Error(t, err, bad)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("idemhttp 1 201 -\nn Content-Type\nh Link: a\nt Checksum: abc\n\nbody"))
	f.Add([]byte("idemhttp 1 0 hijacked\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		res, err := idemhttp.Decode(b)
		if err != nil {
			return
		}
		again, err := idemhttp.Decode(res.Encode())
		require.NoError(t, err)
		require.Equal(t, res.Status, again.Status)
		require.Equal(t, res.Hijacked, again.Hijacked)
	})
}
