package limithttp

import (
	"context"
	"net/http"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/internal/middleware"
	"github.com/etcdkit/etcdkit/internal/mux"
)

// Middleware returns a middleware that runs a handler under a permit of the request's key: see the
// package's comment. It returns concurrency.ErrInvalid if the limiter is nil and Options.Rate as
// well, or an option is missing or out of range. The middleware is safe for concurrent use.
func Middleware(lim concurrency.Limiter, opts Options) (func(http.Handler) http.Handler, error) {
	c, err := configure("middleware", lim, opts)
	if err != nil {
		return nil, err
	}
	return func(next http.Handler) http.Handler {
		return &limitedHandler{c, next}
	}, nil
}

// limitedHandler is a handler behind the middleware.
type limitedHandler struct {
	*config
	next http.Handler
}

func (h *limitedHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.serve(w, r, h.next) }

// RefusesBefore implements undone.Handler.
func (h *limitedHandler) RefusesBefore() {}

func (c *config) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	key, limited := c.limited(r)
	if !limited {
		middleware.Begins(r.Context(), mux.Called(next, r))
		next.ServeHTTP(w, r)
		return
	}
	body, front := c.read(r), ofFront(w.Header())
	report := func(err error) { c.ReportError(r, err) }
	res := &response{ResponseWriter: w, client: r.Context()}
	ran, err := c.shared.Run(r.Context(), key, c.each(r), report, func(ctx context.Context) {
		own := r.WithContext(ctx)
		if body != nil {
			own.Body = body
		}
		defer res.outlive(ctx, c.Outage == Share) // after a panic as well
		defer handBack(r, own)
		middleware.Begins(ctx, mux.Called(next, own))
		next.ServeHTTP(res.own(), own)
	})
	if err == nil {
		return
	}
	refused := c.shared.Refuse(r.Context(), key, ran, err)
	if refused.Report {
		report(err)
	}
	if !ran {
		middleware.NothingDone(r.Context())
	}
	if !ran || !res.begun {
		if ran {
			front.restore(w.Header())
		}
		c.refuse(w, r, refused, ran)
	}
}

// handBack has the server's request show what the handler's has got, as without the Middleware: the pattern by which an
// http.ServeMux behind the Middleware has matched it, which a log in front reads (its wildcards, PathValue, are seen behind the
// mux alone), and a form, whose files net/http removes.
func handBack(r, own *http.Request) {
	if own.Pattern != "" {
		r.Pattern = own.Pattern
	}
	if own.MultipartForm != nil {
		r.MultipartForm = own.MultipartForm
	}
}

// FromContext returns the permit under which a request runs, in a handler behind a Middleware: that
// of the innermost one. It returns false for a request that is not limited, and for one that runs
// without a permit in an outage. Under Share the permit is found once the request has got it.
func FromContext(ctx context.Context) (*concurrency.Permit, bool) {
	return middleware.FromContext(ctx)
}
