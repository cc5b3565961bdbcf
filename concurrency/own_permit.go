package concurrency

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/life"
)

// Calls that wait for a permit under which their own context runs. They are not refused: work that was detached from the permit
// may wait for it with the same context, and that ends.

// findBehind returns the token of the permit under which ctx runs and that a call of the queue waits for, or 0, and logs the first
// such call.
func findBehind(ctx context.Context, q *sessionQueue, r *request) (token int64) {
	if q.base != nil || r.Bounded && r.MaxWaiters == 0 {
		return 0 // a limiter refuses it, and a call that does not wait ends
	}
	if token = heldBehind(ctx, q, r.Weight); token != 0 {
		q.saidBehind.Do(func() {
			q.sess.Log().Warn("a call waits for a permit of its own context", zap.String(string(q.kind), q.name), zap.Int64("token", token))
		})
	}
	return token
}

// heldBehind returns the token of the innermost permit of the queue under which ctx runs if what weighs does not fit the limit
// beside all of them, and 0 otherwise.
func heldBehind(ctx context.Context, q *sessionQueue, weight int64) (inner int64) {
	for h := range life.Holds(ctx) {
		e, ok := h.(*ends)
		if !ok || e.queue != q || e.life.Cause() != nil {
			continue
		}
		weight += e.ticket.Weight()
		if inner == 0 {
			inner = e.token
		}
	}
	if limit := q.Newest(); inner == 0 || limit == 0 || weight <= limit { // at 0, it waits for another limit
		return 0
	}
	return inner
}

// sayBehind adds to the error that ends the wait of such a call which permit it has waited for.
func sayBehind(token int64, err error, waited bool) error {
	if token == 0 || !waited {
		return err
	}
	return fmt.Errorf("%w; its own context holds token %d", err, token)
}
