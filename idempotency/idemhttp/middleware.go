package idemhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/idempotency"
)

// Middleware returns what puts a handler behind a store: see the package's comment for what
// it does. It is safe for concurrent use. It panics, as http.Handle does, if the options
// are out of range, or if neither they have a Scope nor the store is SingleTenant.
func Middleware(store *idempotency.Store, opts *Options) func(http.Handler) http.Handler {
	c, err := configure(store, opts)
	if err != nil {
		panic(fmt.Sprintf("idemhttp: %v", err))
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.serve(w, r, next) })
	}
}

func (c *config) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if !slices.Contains(c.Methods, strings.ToUpper(r.Method)) {
		next.ServeHTTP(w, r)
		return
	}
	id, err := key(r.Header, c.Header, c.Strict)
	if errors.Is(err, errMissing) && c.Optional {
		next.ServeHTTP(w, r)
		return
	}
	if err == nil && c.CheckKey != nil {
		err = c.CheckKey(id)
	}
	switch {
	case errors.Is(err, errMissing):
		c.answer(w, r, CodeMissing, "", 0)
		return
	case err != nil:
		c.answer(w, r, CodeMalformed, err.Error(), 0)
		return
	}
	k := idempotency.Key{Op: bounded(c.Op(r)), ID: id}
	if k.Op == "" {
		c.tell(r, errNoOp)
		c.answer(w, r, CodeInternal, "", 0)
		return
	}
	if c.Scope != nil {
		if k.Scope = bounded(c.Scope(r)); k.Scope == "" {
			c.answer(w, r, CodeScope, "", 0)
			return
		}
	}
	if a, ok := idempotency.FromContext(r.Context()); ok && a.Key() == k {
		next.ServeHTTP(w, r) // another Middleware in front of this one has begun it
		return
	}
	body, err := read(r, c.MaxRequest)
	var limit *http.MaxBytesError
	switch {
	case errors.As(err, &limit):
		c.answer(w, r, CodeTooLarge, fmt.Sprintf("It may have %d bytes.", limit.Limit), 0)
		return
	case errors.Is(err, errTooLarge):
		c.answer(w, r, CodeTooLarge, fmt.Sprintf("It may have %d bytes.", c.MaxRequest), 0)
		return
	case errors.Is(err, errConsumed):
		c.tell(r, err)
		c.answer(w, r, CodeInternal, "", 0)
		return
	case err != nil:
		c.answer(w, r, CodeBody, "", 0)
		return
	}
	payload, err := c.Payload(r, body)
	if err != nil {
		c.answer(w, r, CodeBody, err.Error(), 0)
		return
	}
	a, rec, err := c.begin(r, k, payload)
	switch {
	case err != nil:
		c.refuse(w, r, k, err, func() { handle(next, w, restored(r, r.Context(), body)) })
	case rec != nil:
		c.duplicate(w, r, k, rec)
	default:
		c.attempt(w, r, body, next, a)
	}
}

// errNoOp says that requests cannot be told apart.
var errNoOp = errors.New("Options.Op has returned no operation; ByPattern does if no http.ServeMux in front of the Middleware has matched the request")

// begin asks the store.
func (c *config) begin(r *http.Request, k idempotency.Key, payload any) (*idempotency.Attempt, *idempotency.Recorded, error) {
	var opts []idempotency.Option
	if c.Each != nil {
		opts = c.Each(r)
	}
	opts = append(slices.Clip(opts), idempotency.Wait(c.Wait), idempotency.OnError(action))
	if host := c.Host(r); host != "" {
		opts = append(opts, idempotency.Also(host))
	}
	ctx, cancel := context.WithTimeout(r.Context(), c.Wait+c.StoreTimeout)
	defer cancel()
	return c.store.Begin(ctx, k, payload, opts...)
}

// undone is a response that is not to be recorded.
type undone struct{ action idempotency.Action }

func (undone) Error() string { return "the response is not recorded" }

// errCut: net/http sends such a response as it is, and closes the connection, so that the
// client sees that it is not all.
var errCut = errors.New("the response's body is shorter than its Content-Length, so it is not recorded")

// action is the OnError of all attempts.
func action(err error) idempotency.Action {
	var u undone
	if errors.As(err, &u) {
		return u.action
	}
	return idempotency.Forget
}

// attempt runs the handler, records its response and sends it.
func (c *config) attempt(w http.ResponseWriter, r *http.Request, body []byte, next http.Handler, a *idempotency.Attempt) {
	rec := record(w, r, c.MaxResponse, func(err error) { c.tell(r, err) })
	v := &visit{client: r.Context()}
	err := a.Run(r.Context(), func(ctx context.Context) ([]byte, error) {
		handle(next, rec, restored(r, context.WithValue(ctx, visitKey{}, v), body))
		res := rec.end(c)
		what, own := v.decide(c, res)
		switch {
		case res.Status >= 400 && a.Err() != nil:
			what = idempotency.Abandon // it was interrupted, and cannot say how far it came
		case rec.cut() && what == idempotency.Remember && !own:
			what = idempotency.Abandon // it has broken off, as if it had panicked: nobody knows where
			c.tell(r, errCut)
		}
		if what != idempotency.Remember {
			return nil, undone{what}
		}
		if res.Status >= 400 {
			a.Without() // the handler has failed, as a function of Do's that returns an error
		}
		return res.Encode(), nil
	})
	if u := (undone{}); err != nil && (!errors.As(err, &u) || err != error(u)) {
		c.tell(r, err)
	}
	if code := instead(a, err); code != "" {
		if rec.live || rec.hijacked {
			panic(http.ErrAbortHandler) // what was sent is not what counts
		}
		c.answer(w, r, code, "", after(code))
		return
	}
	rec.send()
}

// instead returns what is answered in place of a response that may not be the one that
// counts; "" if it is. That holds for responses that are not recorded, too: a refusal of a
// handler that was interrupted may come after another's success.
func instead(a *idempotency.Attempt, err error) Code {
	switch {
	case a.Certain(err):
		return ""
	case errors.Is(err, idempotency.ErrConflict):
		return CodeConflict
	case errors.Is(err, idempotency.ErrInvalid):
		return CodeInternal // operations that etcd does not take
	}
	return CodeInProgress
}

// after is when a request is worth repeating that was answered so.
func after(code Code) time.Duration {
	if problems[code].Retryable {
		return time.Second
	}
	return 0
}

// duplicate sends what was recorded.
func (c *config) duplicate(w http.ResponseWriter, r *http.Request, k idempotency.Key, rec *idempotency.Recorded) {
	switch {
	case rec.Failed:
		c.answer(w, r, CodeFailed, "", 0)
		return
	case rec.Omitted:
		c.answer(w, r, CodeNotKept, "", 0)
		return
	}
	res, err := Decode(rec.Value)
	switch {
	case err != nil:
		c.tell(r, err)
		c.answerOf(w, r, c.store.Ref(k), CodeUnreadable, "", 0)
	case res.Hijacked:
		c.answer(w, r, CodeNotKept, "", 0)
	default:
		c.replay(w, r, res)
	}
}

// refuse answers a request that the store has not begun.
func (c *config) refuse(w http.ResponseWriter, r *http.Request, k idempotency.Key, err error, open func()) {
	var busy *idempotency.InProgressError
	switch {
	case errors.As(err, &busy):
		c.answer(w, r, CodeInProgress, "", busy.RetryAfter)
		return
	case errors.Is(err, idempotency.ErrMismatch):
		c.answer(w, r, CodeReused, "", 0)
		return
	}
	c.tell(r, err)
	code := CodeUnavailable
	var scope *idempotency.ScopeFullError
	switch {
	case errors.As(err, &scope):
		c.answer(w, r, CodeScopeFull, "", scope.RetryAfter)
		return
	case errors.Is(err, idempotency.ErrInvalid):
		c.answer(w, r, CodeInternal, "", 0)
		return
	case errors.Is(err, idempotency.ErrUnknown):
		c.answerOf(w, r, c.store.Ref(k), CodeUnknown, "", 0)
		return
	case errors.Is(err, idempotency.ErrUnreadable):
		c.answerOf(w, r, c.store.Ref(k), CodeUnreadable, "", 0)
		return
	case errors.Is(err, idempotency.ErrFull):
		code = CodeFull
	}
	if c.FailOpen && errors.Is(err, idempotency.ErrUnavailable) && r.Context().Err() == nil {
		open()
		return
	}
	c.answer(w, r, code, "", time.Second)
}

func (c *config) tell(r *http.Request, err error) {
	if c.OnError != nil {
		c.OnError(r, err)
	}
}
