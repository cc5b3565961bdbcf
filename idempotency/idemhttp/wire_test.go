package idemhttp_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// wire is a connection on which a test writes requests itself.
type wire struct {
	net.Conn
	t     testing.TB
	lines *bufio.Reader
}

func (s server) wire() *wire {
	s.t.Helper()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	require.NoError(s.t, c.SetDeadline(time.Now().Add(soon)))
	return &wire{c, s.t, bufio.NewReader(c)}
}

// send writes the lines of a request's head, and then what follows them.
func (w *wire) send(body string, head ...string) {
	w.t.Helper()
	_, err := io.WriteString(w, strings.Join(head, "\r\n")+"\r\n\r\n"+body)
	require.NoError(w.t, err)
}

// read reads the next response, which may be one with a status 1xx.
func (w *wire) read(method string) reply {
	w.t.Helper()
	resp, err := http.ReadResponse(w.lines, &http.Request{Method: method})
	require.NoError(w.t, err)
	b, err := io.ReadAll(resp.Body)
	require.NoError(w.t, err)
	return reply{resp, string(b)}
}

// A533: a client of HTTP/1.0 keeps its connection wherever it does without the Middleware. A trailer that was not announced,
// which HTTP/1.0 does not have, cost it the connection and the Content-Length, by which it sees that a body is whole.
func TestKeepAliveOfHTTP10(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	for name, h := range map[string]http.HandlerFunc{
		"small":   func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") },
		"nothing": func(http.ResponseWriter, *http.Request) {},
		"none":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"trailer": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "hello")
			w.Header().Set(http.TrailerPrefix+"Checksum", "abc")
		},
		"large trailer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10000")
			_, _ = io.WriteString(w, strings.Repeat("x", 10_000))
			w.Header().Set(http.TrailerPrefix+"Checksum", "abc")
		},
	} {
		for _, method := range []string{http.MethodPost, http.MethodHead} {
			key := strings.ReplaceAll(name, " ", "-") + method
			bare := in.hosting(nil, h).wire()
			guarded := in.serve(&idemhttp.Options{Methods: []string{"POST", "HEAD"}}, h).wire()
			var want reply
			for n, c := range []*wire{bare, guarded, guarded} {
				c.send("body", method+" / HTTP/1.0", "Connection: keep-alive", "Idempotency-Key: "+key, "Content-Length: 4")
				re := c.read(method)
				require.Equal(t, n == 2, re.replayed(), key)
				re.Header.Del("Date")
				re.Header.Del("Idempotent-Replayed")
				if n == 0 {
					want = re
				}
				require.Equal(t, want.StatusCode, re.StatusCode, key)
				require.Equal(t, want.Header, re.Header, key)
				require.Equal(t, want.body, re.body, key)
				require.False(t, re.Close, key)
			}
		}
	}
}

// A client that waits for 100 Continue is asked for its body when the request can begin, and not if it is refused before that.
// A chunked body of just MaxRequest is read to its trailers; of a larger one, nothing runs.
func TestBodyOnTheWire(t *testing.T) {
	t.Parallel()
	const most = 1000
	s := shared(t).instance(nil, nil).serve(&idemhttp.Options{MaxRequest: most}, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%d %v %s", len(b), err, r.Trailer.Get("Checksum"))
	})
	expect := func(key string, length int) *wire {
		c := s.wire()
		c.send("", "POST / HTTP/1.1", "Host: x", "Expect: 100-continue", key, fmt.Sprint("Content-Length: ", length))
		return c
	}
	for _, replayed := range []bool{false, true} {
		c := expect("Idempotency-Key: k", most)
		require.Equal(t, http.StatusContinue, c.read(http.MethodPost).StatusCode)
		_, err := io.WriteString(c, strings.Repeat("x", most))
		require.NoError(t, err)
		re := c.read(http.MethodPost)
		require.Equal(t, replayed, re.replayed())
		require.Equal(t, "1000 <nil> ", re.body)
	}
	require.Equal(t, idemhttp.CodeMissing, expect("Accept: */*", most).read(http.MethodPost).problem(t).Code)
	require.Equal(t, idemhttp.CodeTooLarge, expect("Idempotency-Key: k2", most+1).read(http.MethodPost).problem(t).Code)
	require.EqualValues(t, 1, s.calls.Load())

	c := s.wire()
	for n, size := range []int{most - 1, most, most + 1} {
		c.send(fmt.Sprintf("%x\r\n%s\r\n0\r\nChecksum: abc\r\n\r\n", size, strings.Repeat("x", size)),
			"POST / HTTP/1.1", "Host: x", fmt.Sprint("Idempotency-Key: chunked", n), "Transfer-Encoding: chunked", "Trailer: Checksum")
		if re := c.read(http.MethodPost); size > most {
			require.Equal(t, idemhttp.CodeTooLarge, re.problem(t).Code)
		} else {
			require.Equal(t, fmt.Sprint(size, " <nil> abc"), re.body)
		}
	}
	require.EqualValues(t, 3, s.calls.Load())
}

// A534: a part of a compressed response, and one that was compressed twice, are replayed as they are. For a client without
// gzip the part was decompressed under the range of the compressed one, and the other one once, without any coding.
func TestCompressedResponseThatStays(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	once := zipped(t, []byte("hello"))
	for name, h := range map[string]http.HandlerFunc{
		"part": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", len(once)-1, len(once)))
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(once)
		},
		"twice": func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Encoding"] = []string{"gzip", "gzip"}
			_, _ = w.Write(zipped(t, once))
		},
	} {
		first, again := twice(t, in.serve(nil, h), name, header("Accept-Encoding", "identity"))
		same(t, first, again)
	}
}

func zipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var to bytes.Buffer
	z := gzip.NewWriter(&to)
	_, err := z.Write(b)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return to.Bytes()
}

// A535: names of codings are the same in any letter case (RFC 9110, 8.4.1). An error of Connect whose code is not final was
// recorded for its status if its coding was written GZIP.
func TestErrorInACodingOfAnyCase(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	for _, coding := range []string{"gzip", "GZIP"} {
		s := in.serve(nil, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", coding)
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write(zipped(t, []byte(`{"code":"aborted"}`)))
		})
		for range 2 {
			re := s.post("/", coding, "body", header("Accept-Encoding", "gzip"))
			require.Equal(t, http.StatusConflict, re.StatusCode)
			require.False(t, re.replayed(), coding)
		}
		require.EqualValues(t, 2, s.calls.Load())
	}
}
