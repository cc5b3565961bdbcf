package idemhttp_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// I15: the handler reads the whole body that the client has sent, although the Middleware has read it.
func TestBodyIsRestored(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	s := in.serve(nil, func(w http.ResponseWriter, r *http.Request) {
		length := r.ContentLength
		b, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%d %d %v %v", length, len(b), err, r.Trailer)
		require.NoError(t, r.Body.Close())
	})
	big := strings.Repeat("x", 1<<20)
	require.Equal(t, "1048576 1048576 <nil> map[]", s.post("/", "big", big).body)
	require.True(t, s.post("/", "big", big).replayed())
	require.Equal(t, "0 0 <nil> map[]", s.post("/", "empty", "").body)
	chunked := func(r *http.Request) {
		r.ContentLength = -1
		r.Trailer = http.Header{"Checksum": {"abc"}}
	}
	re := s.post("/", "chunked", "body", chunked)
	require.Equal(t, "-1 4 <nil> map[Checksum:[abc]]", re.body)
	// How it was sent does not count, what was sent does.
	require.True(t, s.post("/", "chunked", "body").replayed())

	s = in.serve(nil, func(w http.ResponseWriter, r *http.Request) {
		require.NoError(t, r.ParseMultipartForm(1<<20))
		fmt.Fprint(w, r.PostFormValue("a"))
	})
	form := header("Content-Type", "application/x-www-form-urlencoded")
	require.Equal(t, "1", s.post("/form", "form", "a=1&b=2", form, func(r *http.Request) {
		var b bytes.Buffer
		m := multipart.NewWriter(&b)
		require.NoError(t, m.WriteField("a", "1"))
		require.NoError(t, m.Close())
		r.Header.Set("Content-Type", m.FormDataContentType())
		r.Body, r.ContentLength = io.NopCloser(&b), int64(b.Len())
	}).body)
}

// I15: the files of a form go when the handler has ended, however that is and whether or not
// it was guarded, as they do in net/http.
func TestFilesOfAForm(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in, away := f.instance(nil, nil), f.instance(nil, nil)
	away.client.Cut()
	var b bytes.Buffer
	m := multipart.NewWriter(&b)
	part, err := m.CreateFormFile("f", "a.bin")
	require.NoError(t, err)
	_, err = part.Write(make([]byte, 600<<10))
	require.NoError(t, err)
	require.NoError(t, m.Close())
	form := header("Content-Type", m.FormDataContentType())
	for name, c := range map[string]struct {
		in  instance
		end func()
	}{
		"returns": {in, func() {}}, "panics": {in, func() { panic(http.ErrAbortHandler) }},
		"exits": {in, runtime.Goexit}, "unguarded": {away, func() {}},
	} {
		t.Run(name, func(t *testing.T) {
			file := make(chan string, 1)
			s := c.in.serve(&idemhttp.Options{FailOpen: true, StoreTimeout: 300 * time.Millisecond}, func(_ http.ResponseWriter, r *http.Request) {
				require.NoError(t, r.ParseMultipartForm(1))
				part, err := r.MultipartForm.File["f"][0].Open()
				require.NoError(t, err)
				require.NoError(t, part.Close())
				file <- part.(*os.File).Name()
				c.end()
			})
			_, _ = s.send(s.request("/", strings.ReplaceAll(t.Name(), "/", "-"), b.String(), form))
			require.NoFileExists(t, got(t, file, "the handler"))
		})
	}
}

// I14: a request with another body, large, empty, chunked or of a form, is another request; so is
// one with another method, path, query or media type.
func TestWhatMakesRequestsTheSame(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s := f.instance(nil, nil).serve(nil, paid)
	chunked := func(r *http.Request) { r.ContentLength = -1 }
	form := header("Content-Type", "application/x-www-form-urlencoded")
	large := strings.Repeat("x", 40<<10)
	for n, c := range []struct {
		path, body string
		ws         []with
		same       bool
		path2      string
		body2      string
		ws2        []with
	}{
		{"/", "", nil, false, "/", "x", nil},
		{"/", "x", nil, false, "/", "", nil},
		{"/", large + "a", nil, false, "/", large + "b", nil},
		{"/", large + "a", []with{chunked}, false, "/", large + "b", []with{chunked}},
		{"/", "a=1", []with{form}, false, "/", "a=2", []with{form}},
		{"/", "a=1", []with{form}, false, "/", "a=1", nil},
		{"/?a=1", "x", nil, false, "/?a=2", "x", nil},
		{"/?a=1&b=2", "x", nil, true, "/?b=2&a=1", "x", nil},
		{"/?a=1&a=2", "x", nil, false, "/?a=2&a=1", "x", nil},
		{"/?a=%zz", "x", nil, false, "/?b=%zz", "x", nil},
		{"/", "x", []with{header("Content-Encoding", "gzip")}, false, "/", "x", nil},
		{"/", "x", []with{header("Content-Type", "text/plain; charset=a")}, true, "/", "x", []with{header("Content-Type", "TEXT/plain")}},
		{"/", `{"a":1,"b":2}`, nil, false, "/", `{"b":2,"a":1}`, nil},
		{"/", "x", nil, true, "/", "x", []with{header("User-Agent", "another"), header("Authorization", "another")}},
		{"/", "x", []with{header("If-Match", `"1"`)}, true, "/", "x", []with{header("If-Match", `"2"`), header("If-None-Match", "*"), header("Range", "bytes=0-1")}},
	} {
		key := fmt.Sprintf("k%d", n)
		require.False(t, s.post(c.path, key, c.body, c.ws...).replayed())
		re := s.post(c.path2, key, c.body2, c.ws2...)
		require.Equal(t, c.same, re.replayed(), n)
		if !c.same {
			require.Equal(t, http.StatusUnprocessableEntity, re.StatusCode, n)
		}
	}
}

// I13: neither the order of members nor space counts in JSON, whatever its type is, where that is asked for.
func TestCanonicalJSON(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s := f.instance(nil, nil).serve(&idemhttp.Options{Payload: idemhttp.CanonicalJSON}, paid)
	require.False(t, s.post("/", "k", `{"a":1,"b":[1,2]}`).replayed())
	require.True(t, s.post("/", "k", ` { "b" : [1,2], "a":1} `).replayed())
	require.Equal(t, idemhttp.CodeReused, s.post("/", "k", `{"a":1,"b":[2,1]}`).problem(t).Code)
	require.Equal(t, idemhttp.CodeReused, s.post("/?x", "k", `{"a":1,"b":[1,2]}`).problem(t).Code)
	require.Equal(t, idemhttp.CodeReused, s.post("/", "k", ``).problem(t).Code)
	require.Equal(t, idemhttp.CodeBody, s.post("/", "k2", `{`).problem(t).Code)
	require.False(t, s.post("/", "k3", ``).replayed())
	require.True(t, s.post("/", "k3", ``).replayed())
}

// I13: what is no JSON, or none that can be compared, is the client's mistake, and not the
// server's.
func TestCanonicalJSONOfOthers(t *testing.T) {
	t.Parallel()
	f := shared(t)
	var reported atomic.Int64
	s := f.instance(nil, nil).serve(&idemhttp.Options{Payload: idemhttp.CanonicalJSON, ReportError: func(*http.Request, error) { reported.Add(1) }}, paid)
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for name, body := range map[string]string{
		"cut": `{"a":1`, "two": `1 2`, "out-of-it": `1],[2`, "out-of-all": `1,"Body":2`,
		"10001": deep(10_001), "100000": deep(100_000),
		"twice": `{"a":1,"a":1000}`, "bytes": "\"\xfe\"", "half": `"\ud800"`,
	} {
		p := s.post("/", name, body).problem(t)
		require.Equal(t, idemhttp.CodeBody, p.Code, name)
		require.Regexp(t, "^the body is (no|not) JSON", p.Detail)
	}
	require.Zero(t, s.calls.Load()+reported.Load())
	require.False(t, s.post("/", "k", deep(10_000)).replayed())
	require.True(t, s.post("/", "k", " "+deep(10_000)).replayed())
}

// Fingerprints are stored: those of a request stay as they are, for each Payload.
func TestPayloadsStay(t *testing.T) {
	t.Parallel()
	request := func(contentType string) *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/%7Eada/pay?b=2&a=1", nil)
		r.Header.Set("Content-Type", contentType)
		return r
	}
	const parts = "--x\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--x--\r\n"
	for _, c := range []struct {
		want    string
		payload func(*http.Request, []byte) (any, error)
		media   string
		body    string
	}{
		{"8b98c80c76d12ff3", idemhttp.Exact, "application/json", `{"a": 1}`},
		{"992bc56c5579b531", idemhttp.Content, "application/json", `{"a": 1}`},
		{"992bc56c5579b531", idemhttp.CanonicalJSON, "application/json", ` {"a":1}`},
		{"851a3db92a809495", idemhttp.CanonicalJSON, "application/json", " \n"},
		{"f817f7977023e901", idemhttp.Exact, "multipart/form-data; boundary=x", parts},
		{"f817f7977023e901", idemhttp.Content, "multipart/form-data; boundary=x", parts},
	} {
		p, err := c.payload(request(c.media), []byte(c.body))
		require.NoError(t, err)
		sum, ok := p.(idempotency.Fingerprint)
		require.True(t, ok)
		require.Equal(t, c.want, fmt.Sprintf("%x", sum[:8]), c.body)
	}
}

// Something that reads the body in front of the middleware would make all payloads equal.
func TestBodyIsGone(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	reported := make(chan error, 100)
	mw := in.middleware(&idemhttp.Options{ReportError: func(_ *http.Request, err error) { reported <- err }})(http.HandlerFunc(paid))
	s := in.hosting(nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/form" {
			require.NoError(t, r.ParseForm())
		} else if r.URL.Path == "/read" {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		mw.ServeHTTP(w, r)
	}))
	form := header("Content-Type", "application/x-www-form-urlencoded")
	chunked := func(r *http.Request) { r.ContentLength = -1 } // its length is not declared
	require.Equal(t, idemhttp.CodeInternal, s.post("/form", "k", "a=1", form, chunked).problem(t).Code)
	require.Equal(t, idemhttp.CodeInternal, s.post("/read", "k", "a=1", form).problem(t).Code)
	for range 2 {
		require.ErrorContains(t, got(t, reported, "an error"), "a handler in front")
	}

	// Without a length (A235 in internal/proof/tested-failures.md) the type shows it, where it does; else the client may have
	// sent an empty body.
	for media, want := range map[string]int{
		"application/json": 400, "application/merge-patch+json; charset=utf-8": 400, "multipart/form-data; boundary=x": 400,
		"application/octet-stream": 201, "application/connect+json": 201, "": 201,
	} {
		require.Equal(t, want, s.post("/read", "k"+strings.ToLower(fmt.Sprintf("%x", media)), "body", chunked, header("Content-Type", media)).StatusCode, media)
		if want == 400 {
			err := got(t, reported, "an error")
			require.ErrorContains(t, err, "Content-Length of 0")
			require.ErrorContains(t, err, "a handler in front")
		}
	}
	empty := func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader("")), -1 }
	require.Equal(t, http.StatusCreated, s.post("/", "empty", "", empty).StatusCode)
	json := header("Content-Type", "application/json")
	require.Equal(t, http.StatusCreated, s.post("/", "none", "", json).StatusCode, "it has a length, which is 0")
	p := s.post("/", "chunked", "", json, empty).problem(t)
	require.Equal(t, idemhttp.CodeBody, p.Code, "its client has to send a length")
	require.Contains(t, p.Detail, "Content-Length of 0")
	require.NotContains(t, p.Detail, "handler")
	require.ErrorContains(t, got(t, reported, "an error"), "Content-Length of 0")
	require.Empty(t, reported)
}

func TestBodyIsTooLarge(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s := f.instance(nil, nil).serve(&idemhttp.Options{MaxRequest: 10}, paid)
	chunked := func(r *http.Request) { r.ContentLength = -1 }
	for _, ws := range [][]with{nil, {chunked}} {
		p := s.post("/", "k", "12345678901", ws...).problem(t)
		require.Equal(t, http.StatusRequestEntityTooLarge, p.Status)
	}
	require.Zero(t, s.calls.Load())
	require.Equal(t, http.StatusCreated, s.post("/", "k", "1234567890").StatusCode)

	// The limit of a handler in front of the Middleware counts, too.
	in := f.instance(nil, nil)
	mw := in.middleware(nil)(http.HandlerFunc(paid))
	s = in.hosting(nil, http.MaxBytesHandler(mw, 5))
	require.Equal(t, idemhttp.CodeTooLarge, s.post("/", "k2", "123456").problem(t).Code)
}

// A465: a body that does not arrive, since its client breaks off or the server's ReadTimeout has passed, was refused as
// malformed, and not to be repeated. Nothing begins, and the same request may be repeated.
func TestBodyBreaksOff(t *testing.T) {
	t.Parallel()
	f := shared(t)
	for name, limit := range map[string]time.Duration{"breaks off": 0, "is late": 50 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := f.instance(nil, nil)
			s := in.serve(nil, paid)
			late := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if limit > 0 { // as of ReadTimeout, from the header on
					assert.NoError(t, http.NewResponseController(w).SetReadDeadline(time.Now().Add(limit)))
				}
				s.Config.Handler.ServeHTTP(w, r)
			}))
			t.Cleanup(late.Close)
			conn, err := net.Dial("tcp", late.Listener.Addr().String())
			require.NoError(t, err)
			defer conn.Close()
			key := strings.ReplaceAll(name, " ", "-")
			_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: "+key+"\r\nContent-Length: 100\r\n\r\nhalf of it")
			require.NoError(t, err)
			if limit == 0 {
				require.NoError(t, conn.(*net.TCPConn).CloseWrite())
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			b, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			p := reply{resp, string(b)}.problem(t)
			require.Equal(t, []any{408, idemhttp.CodeIncomplete, true}, []any{p.Status, p.Code, p.Retryable})
			require.Contains(t, p.Detail, "An earlier one with its key may have executed") // A495
			for n := range 2 {
				require.Equal(t, n > 0, s.post("/", key, "all of it").replayed())
			}
			require.EqualValues(t, 1, s.calls.Load())
		})
	}
}

// A465: which errors of a body are about its connection. A496: the early end of compressed data that has arrived is not.
func TestErrorsOfABody(t *testing.T) {
	t.Parallel()
	mw := shared(t).instance(nil, nil).middleware(nil)
	sized := func(r *http.Request) {
		r.TransferEncoding, r.ContentLength = nil, 100
		r.Header.Set("Content-Length", "100")
	}
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	_, _ = io.WriteString(zip, "all of it")
	require.NoError(t, zip.Close())
	packed.Truncate(packed.Len() - 4)
	unzip, err := gzip.NewReader(&packed)
	require.NoError(t, err)
	_, truncated := io.ReadAll(unzip)
	coded := func(r *http.Request) { sized(r); r.Header.Set("Content-Encoding", "gzip") }
	for _, c := range []struct {
		err    error
		status int
		rpc    string
		with   func(*http.Request)
	}{
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, 408, "unavailable", nil},
		{os.ErrDeadlineExceeded, 408, "unavailable", nil},
		{io.ErrUnexpectedEOF, 408, "unavailable", nil},
		{context.Canceled, 408, "unavailable", nil},
		{errors.New("malformed chunked encoding"), 400, "invalid_argument", nil},
		{io.ErrUnexpectedEOF, 408, "unavailable", sized},
		{truncated, 400, "invalid_argument", coded}, // by a handler in front that decompresses it
		{truncated, 400, "invalid_argument", func(r *http.Request) { sized(r); r.Header.Del("Content-Length") }},
		{truncated, 400, "invalid_argument", func(r *http.Request) { r.TransferEncoding = nil }},
		{os.ErrDeadlineExceeded, 408, "unavailable", coded},
		{gzip.ErrChecksum, 400, "invalid_argument", nil}, // of a handler in front that decompresses it
	} {
		for _, kind := range []string{"text/plain", "application/proto"} {
			r := httptest.NewRequest(http.MethodPost, "/", io.MultiReader(strings.NewReader("half of it"), iotest.ErrReader(c.err)))
			r.Header.Set("Idempotency-Key", "k")
			r.Header.Set("Content-Type", kind)
			if r.TransferEncoding = []string{"chunked"}; c.with != nil {
				c.with(r)
			}
			w := httptest.NewRecorder()
			mw(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler runs") })).ServeHTTP(w, r)
			if kind == "application/proto" {
				require.Contains(t, w.Body.String(), `"code":"`+c.rpc+`"`)
				require.NotContains(t, w.Body.String(), "nothing has executed") // A495: the key is not looked up
				continue
			}
			require.Equal(t, c.status, w.Code, c.err)
			require.Contains(t, w.Body.String(), fmt.Sprintf(`"retryable":%v`, c.status == 408))
		}
	}
}
