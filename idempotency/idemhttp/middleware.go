package idemhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/internal/middleware"
	"github.com/etcdkit/etcdkit/internal/mux"
	"github.com/etcdkit/etcdkit/internal/supervise"
)

// Middleware returns a middleware that runs a handler once for each Idempotency-Key: see the
// package's comment. It returns idempotency.ErrInvalid if the store is nil, an option is out
// of range, or Options.Scope is nil and the store is not SingleTenant. The middleware is safe
// for concurrent use.
func Middleware(store *idempotency.Store, opts *Options) (func(http.Handler) http.Handler, error) {
	c, err := configure("middleware", store, opts)
	if err != nil {
		return nil, err
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.serve(w, r, next) })
	}, nil
}

func (c *config) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if !slices.Contains(c.Methods, strings.ToUpper(r.Method)) {
		c.pass(w, r, next)
		return
	}
	id, err := key(r.Header, c.Header, c.Strict)
	if errors.Is(err, middleware.ErrNoKey) && (c.Optional || supervise.Request(r.URL.Path, r.Header.Get)) {
		c.pass(w, r, next)
		return
	}
	k, refused := c.identify(r, id, err)
	if refused != nil {
		c.answer(w, r, *refused, 0)
		return
	}
	if idempotency.Within(r.Context(), c.shared.Store, k) {
		next.ServeHTTP(w, r) // another Middleware in front of this one has begun it
		return
	}
	body, payload, refused := c.content(r)
	if refused != nil {
		c.answer(w, r, *refused, 0)
		return
	}
	each, own, host := c.perRequest(r, body)
	a, rec, err := c.shared.Begin(r.Context(), k, payload, each, append(own, byEntry(r)...)...)
	switch {
	case err != nil:
		refused := c.shared.Refuse(r.Context(), k, err)
		if refused.Also && host != "" {
			c.otherHost(w, r, body, host, err)
			reuse(body)
			return
		}
		if refused.Open != nil {
			c.unclaimed(w, r, body, next, refused, err)
			return
		}
		if refused.Report {
			report(c, r, body, err)
		}
		c.refuse(w, view(r, body), refused)
		reuse(body)
	case rec != nil:
		c.duplicate(w, r, body, k, rec)
		reuse(body)
	default:
		c.attempt(w, r, body, next, a)
	}
}

// perRequest returns the options of a request, and its virtual host.
func (c *config) perRequest(r *http.Request, body []byte) (each, own []idempotency.Option, host string) {
	if c.Each != nil {
		each = show(r, body, c.Each)
	}
	if host = show(r, body, c.Host); host != "" {
		own = append(own, idempotency.AlsoCompare(host))
	}
	if c.Note != nil {
		own = append(own, idempotency.Note(show(r, body, func(r *http.Request) string { return c.Note(r, body) })))
	}
	return each, own, host
}

// otherHost refuses a request that differs only in its host from the one that its key was used for,
// and reports it: a proxy in front may send the name of an instance.
func (c *config) otherHost(w http.ResponseWriter, r *http.Request, body []byte, host string, err error) {
	report(c, r, body, fmt.Errorf("the request for host %q differs only in its host from the first request with its key: a proxy that sends the name of each backend has to send the client's Host, or Options.Host has to return one host for all of them; if Options.Host was changed, it has to return \"\" until the former records have expired: %w", host, err))
	c.answer(w, view(r, body), Problem{Code: CodeReused, Detail: "The same request was sent with this key to another host. Use one key at one host."}, 0)
}

// pass lets a request without a claim through.
func (c *config) pass(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if err := c.ignored.key(r, &c.Options); err != nil {
		report(c, r, nil, err)
	}
	next.ServeHTTP(w, r)
}

// identify returns the Key of a request, or the problem of a request without one. Id and err are
// the result of reading its header.
func (c *config) identify(r *http.Request, id string, err error) (k idempotency.Key, refused *Problem) {
	if err == nil && c.CheckKey != nil {
		err = c.CheckKey(id)
	}
	switch {
	case errors.Is(err, middleware.ErrNoKey):
		return k, &Problem{Code: CodeMissing}
	case err != nil:
		return k, &Problem{Code: CodeMalformed, Detail: err.Error()}
	}
	k = idempotency.Key{Op: middleware.Fit(c.Op(r)), ID: id}
	if k.Op == "" {
		c.ReportError(r, errNoOp)
		return k, &Problem{Code: CodeInternal}
	}
	if c.Scope != nil {
		if k.Scope = middleware.Fit(c.Scope(r)); k.Scope == "" {
			return k, &Problem{Code: CodeScope}
		}
	}
	return k, nil
}

// errNoOp is reported for a request without an operation: all operations would share its key.
var errNoOp = errors.New("Options.Op has returned no operation; ByPattern does if no http.ServeMux in front of the Middleware has matched the request")

// content returns the body of a request and its payload, or the problem of a body that cannot be
// used.
func (c *config) content(r *http.Request) (body []byte, payload any, refused *Problem) {
	body, err := read(r, c.MaxRequest)
	var limit *http.MaxBytesError
	switch {
	case errors.As(err, &limit):
		return nil, nil, &Problem{Code: CodeTooLarge, Detail: fmt.Sprintf("At most %d bytes are accepted.", limit.Limit)}
	case errors.Is(err, errTooLarge):
		return nil, nil, &Problem{Code: CodeTooLarge, Detail: fmt.Sprintf("At most %d bytes are accepted.", c.MaxRequest)}
	case errors.Is(err, errConsumed):
		c.ReportError(r, err)
		return nil, nil, &Problem{Code: CodeInternal}
	case brokeOff(r, err):
		return nil, nil, &Problem{Code: CodeIncomplete}
	case err != nil:
		return nil, nil, &Problem{Code: CodeBody}
	}
	if coding := otherCoding(r); coding != "" && compresses(r, body) {
		return nil, nil, &Problem{Code: CodeBody, Detail: fmt.Sprintf("Its messages are compressed by %q, and the end of the response would be, too: send them by gzip, or not compressed.", coding)}
	}
	payload = show(r, body, func(r *http.Request) (payload any) {
		payload, err = c.Payload(r, body)
		return payload
	})
	if err != nil {
		return nil, nil, &Problem{Code: CodeBody, Detail: err.Error()}
	}
	return body, payload, nil
}

// errCut is reported for a response that net/http sends as it is before it closes the
// connection, so that the client sees that the body is incomplete.
var errCut = errors.New("the response's body is shorter than its Content-Length, so it is not recorded")

// attempt runs the handler, records its response and sends it.
func (c *config) attempt(w http.ResponseWriter, r *http.Request, body []byte, next http.Handler, a *idempotency.Attempt) {
	reports := func(err error) { report(c, r, body, err) }
	client, leave := context.WithCancelCause(clientOf(r.Context())) // of the first of several Middlewares
	defer leave(nil)
	v := &visit{}
	rec := record(w, r.WithContext(client), c.shared.MaxResponse, reports)
	rec.visit = v
	failed, whole := false, false // after its status; as a response
	defer func() {
		if !whole { // a panic
			rec.breakOff()
		}
		rec.out.wait()
	}()
	refused := c.shared.Run(r.Context(), a, reports, func(ctx context.Context) middleware.Result {
		var release func()
		rec.ctx = ctx
		rec.out = newDelivery(a, ctx, rec, func() { leave(errStalled) })
		v.client, release = middleware.NewClient(ctx, client)
		defer release()
		ctx, refused := middleware.Refusable(ctx, mux.Called(next, r))
		handle(next, rec.own(), forHandler(restored(r, context.WithValue(ctx, visitKey{}, v), body)), r)
		res := rec.end(c)
		rec.stopped = rec.stops(v.ended(a))
		what := v.decide(c, rec, res)
		nothingDone, because := refused()
		what.NothingDone = nothingDone
		what.Because += because
		if rec.cut() && !what.Own {
			reports(errCut)
		}
		if rec.unread != nil && !what.Own {
			reports(fmt.Errorf("%w, so its response is neither recorded nor sent", rec.unread))
		}
		failed = rec.fell()
		return what
	})
	stalled := rec.out.broken()
	rec.out.wait()
	rec.out.settle()
	switch {
	case stalled:
		panic(http.ErrAbortHandler) // what the client has is a part
	case refused == nil && !(failed && rec.live):
		if failed {
			rec.fail()
		}
		if middleware.IsUnknown(a) {
			doubt(rec)
		}
		rec.send()
		whole = true
	case rec.live || rec.hijacked:
		panic(http.ErrAbortHandler) // what was sent may not be the outcome
	default:
		c.refuse(w, view(r, body), *refused)
	}
}

// unclaimed runs the handler without a claim, with the context and the headers that it has in an attempt.
func (c *config) unclaimed(w http.ResponseWriter, r *http.Request, body []byte, next http.Handler, refused middleware.Refusal, err error) {
	reports := func(err error) { report(c, r, body, err) }
	refused.RunUnclaimed(r.Context(), clientOf(r.Context()), err, reports, func(ctx context.Context, client middleware.Client) {
		v := &visit{client: client, over: true} // nothing is recorded that it could decide
		handle(next, w, forHandler(restored(r, context.WithValue(ctx, visitKey{}, v), body)), r)
	})
}

// duplicate answers a duplicate with the recorded outcome.
func (c *config) duplicate(w http.ResponseWriter, r *http.Request, body []byte, k idempotency.Key, rec *idempotency.Outcome) {
	if refused := middleware.Unreplayable(rec); refused != nil {
		c.refuse(w, view(r, body), *refused)
		return
	}
	res, err := Decode(rec.Value)
	switch {
	case err != nil:
		refused, err := c.shared.Undecodable(k, err)
		report(c, r, body, err)
		c.refuse(w, view(r, body), refused)
	case res.Hijacked, res.Omitted && res.Status < 400 && protocolOfCall(r) != plainHTTP: // of a body that was left out, a client of RPC would read an empty message
		c.answer(w, view(r, body), Problem{Code: CodeNotKept}, 0)
	default:
		c.replay(w, r, res)
	}
}
