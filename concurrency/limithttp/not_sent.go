package limithttp

import (
	"fmt"
	"net/http"

	"github.com/etcdkit/etcdkit/concurrency/internal/middleware"
)

// ErrNotSent: nothing of a request was sent, because it got no permit or no token. That is said of this try alone: if a
// retry is around the Transport, an earlier try may have been sent. An error of a Transport matches it
// if and only if base was not called: the limit or the rate was full, etcd did not answer, the request's context ended
// or the request was evicted while it was queued, the session is closed, or an option is wrong. The error matches the
// reason as well, such as concurrency.ErrFull or context.DeadlineExceeded. An error of base does not match, nor that
// of a request whose permit was lost after base was called: the server may have received the request. If base is a
// Transport too, its errors are passed on as they are.
//
// The *url.Error of an http.Client matches if its cause does, with two exceptions, in which the error of a request
// that was not sent need not match. A request that follows a redirect does not: the one before it was sent. Once
// http.Client.Timeout has passed, the client can replace the error by its own, which has the text alone: bound the
// request by its context instead.
//
// limitgrpc.ErrNotSent is the same value.
var ErrNotSent = middleware.ErrNotSent

// notSent returns the error of a request for which base was not called.
func notSent(r *http.Request, err error) error {
	if r.Response != nil { // it follows a redirect
		return fmt.Errorf("limithttp: %s %s, after a redirect: %w", r.Method, r.URL.Host, err)
	}
	return fmt.Errorf("limithttp: %s %s: %w: %w", r.Method, r.URL.Host, ErrNotSent, err)
}
