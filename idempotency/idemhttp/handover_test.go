package idemhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// D6: what is written before a Hijack is sent as net/http sends it. One library for WebSockets writes
// the status 101 and hijacks then, another one hijacks first and writes the response itself.
func TestSwitchingProtocols(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	for name, accept := range map[string]http.HandlerFunc{
		"status-first": func(w http.ResponseWriter, r *http.Request) {
			hijacker, ok := w.(http.Hijacker)
			require.True(t, ok)
			w.Header().Set("Upgrade", "websocket")
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Sec-WebSocket-Accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
			w.WriteHeader(http.StatusSwitchingProtocols)
			conn, brw, err := hijacker.Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			early, _ := brw.Peek(brw.Reader.Buffered())
			brw.Reader.Reset(io.MultiReader(bytes.NewReader(early), conn))
			echo(conn, brw.Reader)
		},
		"hijack-first": func(w http.ResponseWriter, r *http.Request) {
			conn, brw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
			echo(conn, brw.Reader)
		},
		"a-body-first": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(w, "the beginning")
			hijack(t, w)
		},
		"a-whole-body-first": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5")
			w.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(w, "hello")
			assert.NoError(t, http.NewResponseController(w).Flush())
			hijack(t, w)
		},
		"a-large-body-first": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5000")
			w.Header().Set("Content-Type", "text/plain")
			_, _ = w.Write(bytes.Repeat([]byte("x"), 5000)) // of a string, net/http alone would drop the end
			hijack(t, w)
		},
	} {
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			bare := in.hosting(nil, accept)
			behind := in.serve(&idemhttp.Options{Methods: []string{method}}, accept)
			want := upgraded(t, bare, method, "")
			require.Contains(t, want, "ping", name)
			require.Equal(t, want, upgraded(t, behind, method, name+method), name)
			require.Eventually(t, func() bool { // of the connection only the fact is recorded
				re, err := behind.send(behind.request("/", name+method, "", func(r *http.Request) { r.Method = method }))
				return err == nil && re.problem(t).Code == idemhttp.CodeNotKept
			}, soon, 5*time.Millisecond, name)
		}
	}
}

// hijack takes over the connection, and echoes.
func hijack(t *testing.T, w http.ResponseWriter) {
	conn, brw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	echo(conn, brw.Reader)
}

// echo sends the next line back, and closes the connection.
func echo(conn net.Conn, r *bufio.Reader) {
	defer conn.Close()
	line, _ := r.ReadString('\n')
	_, _ = io.WriteString(conn, line)
}

// upgraded sends a request and a line, and returns all that comes back but the date.
func upgraded(t *testing.T, s server, method, key string) string {
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "%s / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: %q\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nping\n", method, key)
	require.NoError(t, err)
	var got bytes.Buffer
	for r := bufio.NewReader(conn); ; {
		line, err := r.ReadString('\n')
		if !bytes.HasPrefix([]byte(line), []byte("Date:")) {
			got.WriteString(line)
		}
		if err != nil {
			return got.String()
		}
	}
}

// A server that cannot hand over its connection, as in HTTP/2, gets the response when it is recorded.
func TestHijackThatIsRefused(t *testing.T) {
	t.Parallel()
	f := shared(t)
	w := httptest.NewRecorder()
	ran := false
	f.instance(nil, nil).middleware(nil)(http.HandlerFunc(func(own http.ResponseWriter, _ *http.Request) {
		ran = true
		own.WriteHeader(http.StatusCreated)
		_, _, err := http.NewResponseController(own).Hijack()
		require.ErrorIs(t, err, http.ErrNotSupported)
		require.Equal(t, http.StatusOK, w.Code, "it was sent before it is recorded")
	})).ServeHTTP(w, server{t: t, Server: &httptest.Server{}}.request("/", "k", "body"))
	require.True(t, ran)
	require.Equal(t, http.StatusCreated, w.Code)
}

// D7: http.CloseNotifier, which some frameworks still need, notices a client that has hung up.
func TestCloseNotify(t *testing.T) {
	t.Parallel()
	f := shared(t)
	begun, over := make(chan struct{}), make(chan struct{})
	s := f.instance(nil, nil).serve(nil, func(w http.ResponseWriter, r *http.Request) {
		gone := w.(interface{ CloseNotify() <-chan bool }).CloseNotify()
		close(begun)
		<-gone
		close(over)
	})
	ctx, cancel := context.WithCancel(ctxT(t))
	r := s.request("/", "k", "body").WithContext(ctx)
	go func() { _, _ = s.send(r) }()
	got(t, begun, "the handler")
	cancel()
	got(t, over, "the notice")
}

// D8: a handler in front that asks for a form's value reads nothing of any other body.
func TestFormValueInFront(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	reported := make(chan error, 10)
	mw := in.middleware(&idemhttp.Options{ReportError: func(_ *http.Request, err error) { reported <- err }})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	}))
	fronts := map[string]func(*http.Request){
		"FormValue":          func(r *http.Request) { _ = r.FormValue("_method") },
		"PostFormValue":      func(r *http.Request) { _ = r.PostFormValue("csrf") },
		"ParseForm":          func(r *http.Request) { _ = r.ParseForm() },
		"ParseMultipartForm": func(r *http.Request) { _ = r.ParseMultipartForm(1 << 10) },
	}
	for name, ask := range fronts {
		s := in.hosting(nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ask(r)
			mw.ServeHTTP(w, r)
		}))
		for _, kind := range []string{"application/json", "", "text/plain"} {
			for i := range 2 {
				re := s.post("/"+name, name+kind, `{"cents":1}`, header("Content-Type", kind))
				require.Equal(t, `{"cents":1}`, re.body, "%s %s", name, kind)
				require.Equal(t, i == 1, re.replayed())
			}
		}
		re := s.post("/"+name, name, "a=1", header("Content-Type", "application/x-www-form-urlencoded; charset=utf-8"), func(r *http.Request) { r.ContentLength = -1 })
		require.Equal(t, idemhttp.CodeInternal, re.problem(t).Code, name)
		require.ErrorContains(t, got(t, reported, "an error"), "ParseForm", name)
	}
}
