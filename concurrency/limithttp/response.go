package limithttp

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/etcdkit/etcdkit/concurrency/internal/middleware"
)

// response is a handler's ResponseWriter. It passes everything on as it is, and knows whether the
// response has begun and whether the connection was hijacked.
type response struct {
	http.ResponseWriter
	client context.Context // of the client's request
	begun  bool
	conn   *hijacked
}

// Unwrap returns the server's ResponseWriter, for http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader passes the status on. A status 1xx is no beginning, except for 101.
func (w *response) WriteHeader(status int) {
	w.begun = w.begun || status >= http.StatusOK || status == http.StatusSwitchingProtocols
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(p []byte) (int, error) {
	w.begun = true
	return w.ResponseWriter.Write(p)
}

func (w *response) WriteString(s string) (int, error) {
	w.begun = true
	return io.WriteString(w.ResponseWriter, s)
}

// ReadFrom lets the server send a file without copying it.
func (w *response) ReadFrom(src io.Reader) (int64, error) {
	w.begun = true
	return io.Copy(w.ResponseWriter, src)
}

// FlushError sends what is buffered. It returns an error of the server's, such as
// http.ErrNotSupported.
func (w *response) FlushError() error {
	err := http.NewResponseController(w.ResponseWriter).Flush()
	w.begun = w.begun || !errors.Is(err, http.ErrNotSupported)
	return err
}

// Flush is FlushError.
func (w *response) Flush() { _ = w.FlushError() }

// Hijack hands the connection to the handler. It returns an error of the server's, such as
// http.ErrNotSupported.
func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return conn, rw, err
	}
	w.begun = true
	w.conn = &hijacked{Conn: conn, closed: make(chan struct{})}
	return w.conn, rw, nil
}

// CloseNotify returns a channel that receives a value when the client has hung up. It is for code
// that still needs http.CloseNotifier, which the request's context replaces.
func (w *response) CloseNotify() <-chan bool {
	gone := make(chan bool, 1)
	context.AfterFunc(w.client, func() { gone <- true })
	return gone
}

// outlive waits until a hijacked connection is closed, or its permit has ended. Where lost permits
// count as well it waits for the connection alone.
func (w *response) outlive(ctx context.Context, lostCount bool) {
	lost, counted := middleware.Counted(ctx)
	if w.conn == nil || !counted {
		return
	}
	if lostCount {
		lost = nil
	}
	select {
	case <-w.conn.closed:
	case <-lost:
	}
}

// hijacked is a connection that reports when it is closed.
type hijacked struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

// Close closes the connection. It returns its error.
func (c *hijacked) Close() error {
	defer c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// NetConn returns the connection of the server, as that of tls.Conn does.
func (c *hijacked) NetConn() net.Conn { return c.Conn }
