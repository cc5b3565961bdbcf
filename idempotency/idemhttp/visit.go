package idemhttp

import (
	"cmp"
	"context"
	"sync/atomic"

	"github.com/etcdkit/etcdkit/idempotency"
)

// visit is one call of a handler by a Middleware.
type visit struct {
	client  context.Context
	decided atomic.Pointer[idempotency.Action]
}

type visitKey struct{}

// Client returns the context of the client's request, which ends when the client hangs up. A
// handler's own context is the attempt's, which does not. Without a Middleware, Client returns
// ctx.
func Client(ctx context.Context) context.Context {
	if v, ok := ctx.Value(visitKey{}).(*visit); ok {
		return v.client
	}
	return ctx
}

// Decide sets what happens to the request when its handler has returned, whatever the status:
// Remember for a 500 after an effect, Forget for a 200 that is not to be replayed. DefaultAction
// leaves it to Options.OnStatus. The last call counts. Decide reports whether ctx belongs to a
// handler behind a Middleware.
func Decide(ctx context.Context, what idempotency.Action) bool {
	v, ok := ctx.Value(visitKey{}).(*visit)
	if ok {
		v.decided.Store(&what)
	}
	return ok
}

// decide returns what happens to the request, and whether the handler has set it.
func (v *visit) decide(c *config, res *Response) (what idempotency.Action, own bool) {
	if d := v.decided.Load(); d != nil && *d != idempotency.DefaultAction {
		return *d, true
	}
	if res.Hijacked {
		return idempotency.Remember, false
	}
	return cmp.Or(c.OnStatus(res.Status), RememberFinal(res.Status)), false
}
