package concurrency

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/life"
)

// Calls that wait for a permit under which their own context runs. They are not refused: work that was detached from the permit
// may wait for it with the same context, and that ends.

// behind returns the permit under which ctx runs and that such a call waits for, or nil. What weighs has to fit the limit beside
// all permits of the queue in ctx.
func (q *sessionQueue) behind(ctx context.Context, weight int64) (inner *Permit) {
	for h := range life.Holds(ctx) {
		e, ok := h.(*ends)
		if !ok || e.queue != q || e.life.Cause() != nil {
			continue
		}
		weight += e.ticket.Weight()
		if inner == nil {
			inner = (*Permit)(e)
		}
	}
	if inner == nil {
		return nil
	}
	if limit := q.Newest(); limit == 0 || weight <= limit { // at 0, it waits for another limit
		return nil
	}
	return inner
}

// findBehind looks whether the call waits for a permit of its own context, and logs the first such call of the queue.
func (a *attempt) findBehind(ctx context.Context) {
	if a.source != nil || a.queue.base != nil || a.Bounded && a.MaxWaiters == 0 {
		return // a limiter refuses it, and a call that does not wait ends
	}
	if a.behind = a.queue.behind(ctx, a.Weight); a.behind == nil {
		return
	}
	a.queue.saidBehind.Do(func() {
		a.queue.sess.Log().Warn("a call waits for a permit of its own context",
			zap.String(string(a.queue.kind), a.queue.name), zap.Int64("token", a.behind.token))
	})
}

// sayBehind adds to the error that ends the wait of such a call which permit it has waited for.
func (a *attempt) sayBehind(err error, waited bool) error {
	if a.behind == nil || !waited {
		return err
	}
	return fmt.Errorf("%w; its own context holds token %d", err, a.behind.token)
}
