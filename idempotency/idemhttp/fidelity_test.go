package idemhttp_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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

// I18: headers with several values, commas and bytes of all kinds come back as they were.
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

// I19: cookies and credentials reach the first client, and no other; nor does what the
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

// I16: a compressed response keeps its coding; a client that does not accept it gets it decompressed.
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
	mw := in.middleware(nil)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
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

// What is in the headers before the handler is of this request, and is not stored.
func TestHeadersOfOthers(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	mw := in.middleware(nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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

// I25: hints go to the first client at once and are not stored; a second status counts for
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
