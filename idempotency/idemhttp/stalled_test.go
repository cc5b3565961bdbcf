package idemhttp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// deaf is the connection of a client that reads up to the header of its response, and then nothing more.
type deaf struct {
	net.Conn
	hears func() bool
	end   chan struct{}
	close sync.Once
}

func (d *deaf) Read(p []byte) (int, error) {
	if !d.hears() {
		<-d.end
		return 0, net.ErrClosed
	}
	return d.Conn.Read(p[:min(len(p), 512)])
}

func (d *deaf) Close() error {
	d.close.Do(func() { close(d.end) })
	return d.Conn.Close()
}

// deafTo returns a client of s that stops reading once the handler has begun.
func deafTo(t *testing.T, s *httptest.Server, begun <-chan struct{}) *http.Client {
	hears := func() bool {
		select {
		case <-begun:
			return false
		default:
			return true
		}
	}
	tr := s.Client().Transport.(*http.Transport).Clone()
	tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		d := &deaf{Conn: c, hears: hears, end: make(chan struct{})}
		t.Cleanup(func() { _ = d.Close() })
		return d, nil
	}
	return &http.Client{Transport: tr}
}

// stalling is a handler that sends much more than the buffers of a connection take, and then works on.
type stalling struct {
	begun, written chan struct{}
	flushes        bool
}

func (st *stalling) serve(w http.ResponseWriter, r *http.Request) {
	part := make([]byte, 1<<20)
	w.Header().Set("Location", "/reports/1")
	w.WriteHeader(http.StatusCreated)
	if st.flushes {
		_, _ = io.WriteString(w, "begun")
		_ = http.NewResponseController(w).Flush()
	}
	close(st.begun)
	for range 64 {
		if n, err := w.Write(part); n != len(part) || err != nil {
			return
		}
	}
	close(st.written)
}

// A700: a client that does not read its response held the attempt until MaxExecution had passed: it counted as lost, and the
// request executed again. Its response ends, and the handler goes on: its outcome is recorded. Over HTTP/1.1, over a stream of
// HTTP/2 that the client does not read, and over HTTP/2 on a connection that it does not read.
func TestClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ http2, deaf, tls, flushes bool }{
		"HTTP/1.1":                {deaf: true},
		"HTTP/1.1, flushed":       {deaf: true, flushes: true},
		"HTTP/1.1, TLS":           {deaf: true, tls: true},
		"a stream of HTTP/2":      {http2: true, tls: true},
		"a connection of HTTP/2":  {http2: true, tls: true, deaf: true},
		"a connection, and flush": {http2: true, tls: true, deaf: true, flushes: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := shared(t).instance(nil, &idempotency.Options{SingleTenant: true, MaxExecution: 8 * time.Second})
			st := &stalling{begun: make(chan struct{}), written: make(chan struct{}), flushes: c.flushes}
			s := httptest.NewUnstartedServer(in.middleware(nil)(http.HandlerFunc(st.serve)))
			s.EnableHTTP2 = c.http2
			if c.tls {
				s.StartTLS()
			} else {
				s.Start()
			}
			t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
			client := s.Client()
			if c.deaf {
				client = deafTo(t, s, st.begun)
			}
			ctx, cancel := context.WithCancel(ctxT(t))
			defer cancel()
			post := func(client *http.Client) (*http.Response, error) {
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, nil)
				require.NoError(t, err)
				r.Header.Set("Idempotency-Key", "k")
				return client.Do(r)
			}
			first := make(chan struct{})
			go func() {
				defer close(first)
				if resp, err := post(client); err == nil { // and does not read it
					defer resp.Body.Close()
					<-ctx.Done()
				}
			}()
			got(t, st.begun, "the handler's begin")
			got(t, st.written, "the handler's end")
			other := &http.Client{Transport: s.Client().Transport.(*http.Transport).Clone()}
			defer other.CloseIdleConnections()
			require.Eventually(t, func() bool {
				resp, err := post(other)
				require.NoError(t, err)
				defer resp.Body.Close()
				require.Contains(t, []int{http.StatusCreated, http.StatusConflict}, resp.StatusCode)
				return resp.Header.Get("Idempotent-Replayed") == "true"
			}, soon, 5*time.Millisecond)
			cancel()
			<-first
		})
	}
}

// stuck is a ResponseWriter without deadlines whose Write blocks until the connection ends.
type stuck struct {
	*httptest.ResponseRecorder
	end chan struct{}
}

func (s *stuck) Write([]byte) (int, error) {
	<-s.end
	return 0, errors.New("the connection has ended")
}

func (s *stuck) Flush() { <-s.end }

// A700: Close does not wait for such a client, also before a write has taken its time, and without deadlines. A handler that
// looks for its client ends. ServeHTTP returns when the server is done with the write, and its response breaks off.
func TestCloseBesideAClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]func(w http.ResponseWriter, r *http.Request){
		"a large response": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusCreated)
			if n, err := w.Write(make([]byte, 2<<20)); n != 2<<20 || err != nil {
				panic(err)
			}
		},
		"flushed": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusCreated)
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, "data")
			_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
		},
		"a stream": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusCreated)
			for idemhttp.Client(r.Context()).Err() == nil {
				_, _ = io.WriteString(w, "data")
				_ = http.NewResponseController(w).Flush()
			}
			idemhttp.Decide(r.Context(), idempotency.Remember)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			in := f.instance(nil, nil)
			w := &stuck{httptest.NewRecorder(), make(chan struct{})}
			begun, returned := make(chan struct{}), make(chan any, 1)
			go func() {
				defer func() { returned <- recover() }()
				in.middleware(nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					close(begun)
					handler(w, r)
				})).ServeHTTP(w, httptestRequest(t, "k"))
			}()
			got(t, begun, "the handler's begin")
			require.NoError(t, in.sess.Close(ctxT(t)))
			require.Empty(t, returned, "ServeHTTP has returned beside a write")
			close(w.end)
			require.Equal(t, http.ErrAbortHandler, got(t, returned, "the end"))
			again := httptest.NewRecorder()
			f.instance(nil, nil).middleware(nil)(http.NotFoundHandler()).ServeHTTP(again, httptestRequest(t, "k"))
			require.Equal(t, "true", again.Header().Get("Idempotent-Replayed"), again.Body)
			require.Equal(t, http.StatusCreated, again.Code)
		})
	}
}

// panicking is a ResponseWriter that panics, as one in front of a connection that has ended may.
type panicking struct{ *httptest.ResponseRecorder }

func (panicking) FlushError() error { panic(http.ErrAbortHandler) }

// A700: a panic of the server's ResponseWriter is one of the handler, although another goroutine writes: it does not end the
// process.
func TestPanicOfAWriter(t *testing.T) {
	t.Parallel()
	mw := shared(t).instance(nil, nil).middleware(nil)
	var passed any
	require.PanicsWithError(t, http.ErrAbortHandler.Error(), func() {
		mw(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			defer func() {
				passed = recover()
				panic(passed)
			}()
			_ = http.NewResponseController(w).Flush()
		})).ServeHTTP(panicking{httptest.NewRecorder()}, httptestRequest(t, "k"))
	})
	require.Equal(t, http.ErrAbortHandler, passed)
}
