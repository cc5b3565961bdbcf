package either

import (
	"context"
	"sync"
	"time"
)

// Bound has contexts that end For after they were asked for, or up to a fiftieth of that earlier: those that are asked for
// within such a time are one context with one timer. It is safe for concurrent use once For is set.
type Bound struct {
	For time.Duration

	mu    sync.Mutex
	ctx   context.Context
	until time.Time
}

// Context returns a context that ends then, with DeadlineExceeded.
func (b *Bound) Context() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.ctx == nil || b.until.Sub(now) < b.For-b.For/50 {
		ctx, cancel := context.WithDeadline(context.Background(), now.Add(b.For))
		context.AfterFunc(ctx, cancel) // each ends by its time alone
		b.ctx, b.until = ctx, now.Add(b.For)
	}
	return b.ctx
}
