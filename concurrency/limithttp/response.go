package limithttp

import (
	"context"
	"io"
	"net/http"

	"github.com/etcdkit/etcdkit/concurrency/internal/middleware"
)

// response is what the middleware knows of a handler's response: whether it has begun, and whether the
// connection was hijacked. The handler's ResponseWriter is what own returns.
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
	w.conn.wait(lost)
}
