package idemhttp

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/internal/middleware"
)

// visit is one call of a handler by a Middleware.
type visit struct {
	client middleware.Client

	mu    sync.Mutex
	said  word
	asked bool // for the client's context
	over  bool // the handler has returned
}

// word is what the handler has said with Decide.
type word struct {
	what     idempotency.Action
	statuses []int // none means any
}

type visitKey struct{}

// Client returns a context that ends when the client hangs up, and with ctx's attempt at the latest. A handler's
// own context is the attempt's, which does not end with the client. Client's context has the values of ctx, so what
// a handler sends with it through Transport has the attempt's keys. Without a Middleware, Client returns ctx.
//
// If the client leaves after a handler that has asked for Client has begun its response, the response may be a part: see
// "What is recorded" in the package's comment.
func Client(ctx context.Context) context.Context {
	if v, ok := ctx.Value(visitKey{}).(*visit); ok {
		v.ask()
	}
	return clientOf(ctx)
}

// ask says that the handler has asked for the client's context.
func (v *visit) ask() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked = true
}

// clientOf is Client for a Middleware behind another one.
func clientOf(ctx context.Context) context.Context {
	if v, ok := ctx.Value(visitKey{}).(*visit); ok {
		return v.client.Of(ctx)
	}
	return ctx
}

// Decide sets what happens to the request when its handler has returned: Remember for a 500 after an
// effect, Forget for a 200 that is not to be replayed, or because nothing was done. DefaultAction
// leaves it to Options.OnStatus. The last call counts. Decide reports whether ctx belongs to a handler
// behind a Middleware that has not returned yet; otherwise it has no effect.
//
// With statuses it counts only for a response that has one of them. Forget without a status counts only for a
// response below 400, whenever it is said: name each other status for which nothing was done, as Decide(ctx, Forget,
// 503) does in front of a 503. Such a status can come after the effect: a provider's answer is passed on, or a
// recoverer behind the Middleware makes a 500 of a panic. Of a call of Connect, gRPC or gRPC-Web, the status is the
// one that Connect gives to its code.
//
// After Abandon, a response below 400 is withheld: the client gets a 409, or a response that breaks off. Remember also says
// that the end of a context did not stop the handler. A 5xx on top of the response, as of a recoverer, takes its place, and
// is what Remember records, unless a Content-Length shows that the response is whole. If a part was sent, the response
// breaks off, and duplicates get its status without a body. What was attached is written in neither case.
func Decide(ctx context.Context, what idempotency.Action, statuses ...int) bool {
	v, ok := ctx.Value(visitKey{}).(*visit)
	if !ok {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.over {
		v.said = word{what, slices.Clone(statuses)}
	}
	return !v.over
}

// decide returns what a response means for the request.
func (v *visit) decide(c *config, rec *recorder, res *Response) middleware.Result {
	v.mu.Lock()
	said := v.said
	v.over = true
	v.mu.Unlock()
	replaced := false
	if said.what == idempotency.Remember {
		if replaced = rec.remember(said); replaced {
			*res = *rec.end(c)
		}
	}
	end := rec.judge()
	r := middleware.Result{Action: end.kind.Action(), Failed: end.kind != middleware.Success, Because: end.text, Encode: func() []byte { return recorded(rec.r, res, end) }}
	if said.what == idempotency.Forget && !said.counts(end.status) {
		r.Because += ", a status that its Decide(Forget) does not name"
	}
	broken := end.kind == middleware.Broken
	switch {
	case replaced, said.counts(end.status) && !((broken || rec.unfinished()) && said.what == idempotency.Forget):
		r.Action, r.Own = said.what, true
	case broken || res.Hijacked:
	default:
		// What is final by its status can say more: a 409 with Retry-After, an unknown outcome.
		if says := c.OnStatus(end.status); says != RememberFinal(end.status) {
			r.Action = cmp.Or(says, r.Action)
		}
	}
	r.Withhold = rec.withheld(end.kind, r)
	return r
}

// counts reports whether the handler has said something of a response with that status.
func (w word) counts(status int) bool {
	if len(w.statuses) == 0 {
		return w.what != idempotency.DefaultAction && (w.what != idempotency.Forget || status < 400)
	}
	return w.what != idempotency.DefaultAction && slices.Contains(w.statuses, status)
}

// ending is how a response has ended.
type ending struct {
	kind   middleware.End
	status int    // of the response, or the one that stands for the code of an RPC
	text   string // for the log
	code   uint32 // of an RPC, as far as it is known; 0 otherwise
}

// ofStatus returns the ending that a status stands for.
func ofStatus(status int) ending {
	return ending{kind: middleware.EndOfStatus(status), status: status, text: fmt.Sprintf("the handler has answered %d", status)}
}
