package limithttp_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

func http2(s *httptest.Server) { s.EnableHTTP2 = true }

// TestClientLeaves: a client that leaves while its request waits frees its place, in each version of
// HTTP, with a body and without.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method string
		body   func() io.Reader
		server func(*httptest.Server)
	}{
		"GET":                           {http.MethodGet, func() io.Reader { return nil }, func(*httptest.Server) {}},
		"POST":                          {http.MethodPost, func() io.Reader { return strings.NewReader("a body") }, func(*httptest.Server) {}},
		"POST, HTTP/2":                  {http.MethodPost, func() io.Reader { return strings.NewReader(strings.Repeat("x", 1<<20)) }, http2},
		"POST without a length, HTTP/2": {http.MethodPost, func() io.Reader { return io.MultiReader(strings.NewReader("a body")) }, http2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := newInstance(t, 1)
			in.take("acme")
			s := in.serve(options(wait(time.Hour)), ok, c.server)
			ctx, leave := context.WithCancel(ctxT(t))
			first := s.later(s.request(ctx, c.method, "acme", c.body()))
			in.waiters("acme", 1)
			leave()
			require.Zero(t, testkit.Got(t, first, "the request ends"))
			in.waiters("acme", 0)
			require.Zero(t, s.calls.Load())
		})
	}
}

// TestClientLeavesWithALargeBody: in HTTP/1.1 a client with a body above Buffer, or of unknown length, is not seen to leave,
// and its place is freed when Wait has passed.
func TestClientLeavesWithALargeBody(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]io.Reader{
		"large": strings.NewReader(strings.Repeat("x", 8<<20)), "without a length": io.MultiReader(strings.NewReader("a body")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := newInstance(t, 1)
			in.take("acme")
			s := in.serve(options(wait(2*time.Second), func(o *limithttp.Options) { o.Buffer = 1 << 10 }), ok)
			ctx, leave := context.WithCancel(ctxT(t))
			begun := time.Now()
			first := s.later(s.request(ctx, http.MethodPost, "acme", body))
			in.waiters("acme", 1)
			leave()
			require.Zero(t, testkit.Got(t, first, "the request ends"))
			in.waiters("acme", 0)
			require.GreaterOrEqual(t, time.Since(begun), 2*time.Second)
			require.Zero(t, s.calls.Load())
		})
	}
}

// TestHalfABody: a client that sends half of its body holds no permit, and leaves nothing behind.
func TestHalfABody(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	s := in.serve(options(), ok)
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST /work HTTP/1.1\r\nHost: x\r\nTenant: acme\r\nContent-Length: 100\r\n\r\nhalf")
	require.NoError(t, err)
	for range 20 {
		require.Equal(t, http.StatusOK, s.get("acme").StatusCode)
	}
	require.EqualValues(t, 20, s.calls.Load())
	_, err = conn.Write([]byte(strings.Repeat("x", 96)))
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.EqualValues(t, 21, s.calls.Load())
}

// A678: a body of unknown length over HTTP/1.1, whose client sends a part and pauses, arrives at its handler as it comes: the
// handler was called after 64 KiB or at the end. It holds the permit meanwhile, as with a body above Options.Buffer.
func TestPausingBody(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	parts := make(chan string, 2)
	s := in.serve(options(), func(w http.ResponseWriter, r *http.Request) {
		for line := bufio.NewReader(r.Body); ; {
			part, err := line.ReadString('\n')
			if err != nil {
				break
			}
			parts <- part
		}
		ok(w, r)
	})
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = fmt.Fprint(conn, "POST /work HTTP/1.1\r\nHost: x\r\nTenant: acme\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")
	require.NoError(t, err)
	require.Equal(t, "one\n", testkit.Got(t, parts, "the first part"))
	require.Equal(t, http.StatusTooManyRequests, s.get("acme").StatusCode)
	_, err = fmt.Fprint(conn, "4\r\ntwo\n\r\n0\r\n\r\n")
	require.NoError(t, err)
	require.Equal(t, "two\n", testkit.Got(t, parts, "the second part"))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
}

// TestBodiesArrive: the handler reads the whole body, however much of it was read before.
func TestBodiesArrive(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 5)
	for _, buffer := range []int64{-1, 0, 10, 100} {
		for _, h2 := range []bool{false, true} {
			change := func(s *httptest.Server) { s.EnableHTTP2 = h2 }
			s := in.serve(options(func(o *limithttp.Options) { o.Buffer = buffer }), func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err == nil {
					err = r.Body.Close()
				}
				if err != nil {
					t.Error(err)
				}
				_, _ = w.Write(body)
			}, change)
			for _, size := range []int{0, 1, 9, 10, 11, 100, 5000} {
				want := strings.Repeat("b", size)
				require.Equal(t, want, s.send(s.request(ctxT(t), http.MethodPost, "acme", strings.NewReader(want))).body)
				require.Equal(t, want, s.send(s.request(ctxT(t), http.MethodPost, "acme", io.MultiReader(strings.NewReader(want)))).body)
				expecting := s.request(ctxT(t), http.MethodPost, "acme", strings.NewReader(want))
				expecting.Header.Set("Expect", "100-continue")
				require.Equal(t, want, s.send(expecting).body)
			}
		}
	}
}

// TestFullDuplex: a client may wait for the beginning of the response before it sends more.
func TestFullDuplex(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		buffer int64
		server func(*httptest.Server)
	}{
		"HTTP/2":                        {0, http2},
		"HTTP/1.1":                      {0, func(*httptest.Server) {}}, // A678
		"HTTP/1.1, with a Buffer of -1": {-1, func(*httptest.Server) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := newInstance(t, 1)
			s := in.serve(options(func(o *limithttp.Options) { o.Buffer = c.buffer }), func(w http.ResponseWriter, r *http.Request) {
				answer := http.NewResponseController(w)
				_ = answer.EnableFullDuplex() // HTTP/2 needs none
				for lines := bufio.NewReader(r.Body); ; {
					line, err := lines.ReadString('\n')
					if err != nil {
						return
					}
					_, _ = io.WriteString(w, line)
					_ = answer.Flush()
				}
			}, c.server)
			body, send := io.Pipe()
			go func() { _, _ = io.WriteString(send, "one\n") }()
			resp, err := s.Client().Do(s.request(ctxT(t), http.MethodPost, "acme", body))
			require.NoError(t, err)
			defer resp.Body.Close()
			lines := bufio.NewReader(resp.Body)
			for _, want := range []string{"one\n", "two\n", "three\n"} {
				if want != "one\n" {
					_, err := io.WriteString(send, want)
					require.NoError(t, err)
				}
				line, err := lines.ReadString('\n')
				require.NoError(t, err)
				require.Equal(t, want, line)
			}
			require.NoError(t, send.Close())
			_, err = lines.ReadByte()
			require.ErrorIs(t, err, io.EOF)
			in.holders("acme", 0)
		})
	}
}

// TestBodyThatIsTooLarge: the error of a body that is bounded in front of the middleware arrives at
// the handler.
func TestBodyThatIsTooLarge(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	h := middleware(t, in, options())(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		var large *http.MaxBytesError
		require.ErrorAs(t, err, &large)
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	}))
	for _, body := range []io.Reader{strings.NewReader("too large"), io.MultiReader(strings.NewReader("too large"))} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", body).WithContext(ctxT(t))
		r.Header.Set("Tenant", "acme")
		r.Body = http.MaxBytesReader(w, r.Body, 3)
		h.ServeHTTP(w, r)
		require.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
	}
}

// TestStreaming: what a handler does with its ResponseWriter reaches the client as without the
// middleware: 1xx responses, flushes, files, trailers and deadlines.
func TestStreaming(t *testing.T) {
	t.Parallel()
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprint("HTTP/2=", h2), func(t *testing.T) {
			t.Parallel()
			in := newInstance(t, 1)
			read := make(chan struct{})
			s := in.serve(options(), func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Link", "</style.css>; rel=preload")
				w.WriteHeader(http.StatusEarlyHints)
				w.Header().Set("Trailer", "Sum")
				_, err := io.WriteString(w, "first ")
				if err == nil {
					err = http.NewResponseController(w).Flush()
				}
				if err == nil {
					err = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Hour))
				}
				if err != nil {
					t.Error(err)
				}
				<-read
				_, _ = io.Copy(w, io.LimitReader(strings.NewReader("file"), 4)) // by ReadFrom, if the server has it
				w.(http.Flusher).Flush()
				w.Header().Set("Sum", "10")
			}, func(s *httptest.Server) { s.EnableHTTP2 = h2 })
			resp, err := s.Client().Do(s.request(ctxT(t), http.MethodGet, "acme", nil))
			require.NoError(t, err)
			defer resp.Body.Close()
			part := make([]byte, 6)
			_, err = io.ReadFull(resp.Body, part)
			require.NoError(t, err)
			require.Equal(t, "first ", string(part), "the handler still runs")
			in.holders("acme", 1)
			close(read)
			rest, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, "file", string(rest))
			require.Equal(t, "10", resp.Trailer.Get("Sum"))
			in.holders("acme", 0)
		})
	}
}

// upgrade answers a request to upgrade, as a WebSocket's handler does.
func upgrade(t testing.TB, w http.ResponseWriter) (net.Conn, *bufio.ReadWriter) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return nil, nil
	}
	_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	_ = rw.Flush()
	return conn, rw
}

// dial opens an upgraded connection.
func (s server) dial() (net.Conn, *bufio.Reader) {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(s.t, err)
	s.t.Cleanup(func() { conn.Close() })
	_, err = fmt.Fprintf(conn, "GET /ws HTTP/1.1\r\nHost: x\r\nTenant: acme\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	require.NoError(s.t, err)
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	require.NoError(s.t, err)
	require.Equal(s.t, http.StatusSwitchingProtocols, resp.StatusCode)
	return conn, r
}

// TestUpgrade: the permit of a hijacked connection is held until the handler has returned and the
// connection is closed, in either order.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	closed, leave, conns := make(chan struct{}), make(chan struct{}), make(chan net.Conn, 1)
	s := in.serve(options(), func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ws" {
			ok(w, r)
			return
		}
		conn, rw := upgrade(t, w)
		select {
		case conns <- conn: // the first: it returns while the connection is in use
			go func() {
				line, _ := rw.ReadString('\n')
				_, _ = conn.Write([]byte("echo " + line))
			}()
		default: // the second: it closes the connection and continues
			conn.Close()
			close(closed)
			<-leave
		}
	})
	conn, r := s.dial()
	_, err := conn.Write([]byte("hello\n"))
	require.NoError(t, err)
	line, err := r.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "echo hello\n", line)
	require.Equal(t, http.StatusTooManyRequests, s.get("acme").StatusCode, "the connection is open")
	own := <-conns
	_, plain := own.(interface{ NetConn() net.Conn }).NetConn().(*net.TCPConn)
	require.True(t, plain)
	own.Close()
	own.Close()
	in.holders("acme", 0)

	conns <- nil
	s.dial()
	testkit.Closed(t, closed, "the connection is closed")
	require.Equal(t, http.StatusTooManyRequests, s.get("acme").StatusCode, "the handler runs")
	close(leave)
	in.holders("acme", 0)
	require.Equal(t, http.StatusOK, s.get("acme").StatusCode)
}

// TestUpgradeThenPanic: a handler that panics leaves its connection to others, and the connection its
// permit until it is closed.
func TestUpgradeThenPanic(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	conns := make(chan net.Conn, 1)
	s := in.serve(options(), func(w http.ResponseWriter, _ *http.Request) {
		conn, _ := upgrade(t, w)
		conns <- conn
		panic(http.ErrAbortHandler)
	})
	_, r := s.dial()
	conn := <-conns
	for range 20 {
		require.Equal(t, http.StatusTooManyRequests, s.get("acme").StatusCode, "the connection is open")
	}
	_, err := conn.Write([]byte("still open\n"))
	require.NoError(t, err)
	line, err := r.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "still open\n", line)
	conn.Close()
	in.holders("acme", 0)
}

// TestUpgradeLost: a lost permit ends the wait for a hijacked connection, which stays open.
func TestUpgradeLost(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	rs := make(reports, 1)
	conns := make(chan net.Conn, 1)
	s := in.serve(options(rs.option), func(w http.ResponseWriter, _ *http.Request) {
		conn, _ := upgrade(t, w)
		conns <- conn
	})
	_, r := s.dial()
	st, err := in.Key("acme").Status(ctxT(t))
	require.NoError(t, err)
	require.NoError(t, in.Key("acme").EvictToken(ctxT(t), st.Holders[0].Token, "test"))
	require.Error(t, testkit.Got(t, rs, "the report"))
	conn := <-conns
	_, err = conn.Write([]byte("still open\n"))
	require.NoError(t, err)
	line, err := r.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "still open\n", line)
	conn.Close()
}

// TestHTTP2CannotHijack: the error of the server arrives at the handler.
func TestHTTP2CannotHijack(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	s := in.serve(options(), func(w http.ResponseWriter, r *http.Request) {
		_, can := w.(http.Hijacker)
		_, _, err := http.NewResponseController(w).Hijack()
		if can || err == nil || r.ProtoMajor != 2 {
			t.Error(r.Proto, err)
		}
		ok(w, r)
	}, http2)
	s.Client().Transport.(*http.Transport).TLSClientConfig.MinVersion = tls.VersionTLS12
	require.Equal(t, "done", s.get("acme").body)
}

// D7: http.CloseNotifier, which some frameworks still need, notices a client that has hung up.
func TestCloseNotify(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	begun, over := make(chan struct{}), make(chan struct{})
	s := in.serve(options(), func(w http.ResponseWriter, _ *http.Request) {
		gone := w.(interface{ CloseNotify() <-chan bool }).CloseNotify()
		close(begun)
		<-gone
		close(over)
	})
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nTenant: acme\r\n\r\n")
	require.NoError(t, err)
	<-begun
	require.NoError(t, conn.Close())
	<-over
	in.holders("acme", 0)
}
