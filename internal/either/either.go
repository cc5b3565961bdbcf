// Package either has contexts that end with the first of two others. Such a context costs one allocation as long as no code
// waits for its end: the goroutine and the registrations with both others, which context.WithCancelCause and
// context.AfterFunc make at once, are made by the first call of Done.
package either

import (
	"context"
	"sync"
	"sync/atomic"
)

// Ctx is a context that ends with the context in it, or with another one. Its values and its deadline are those of the
// first. It is safe for concurrent use.
type Ctx struct {
	context.Context
	other context.Context
	cause error // of the end with other; nil is that of other

	merged atomic.Pointer[merged] // nil until a code waits for the end

	mu       sync.Mutex
	released bool
}

// merged is the context whose end is waited for.
type merged struct {
	context.Context
	end  context.CancelCauseFunc
	stop func() bool // of the watch over other
}

// Of returns a context that ends with ctx, or with other. Its cause is then that of ctx, or the given one; if that is nil, it
// is the cause of other. Release frees what it has registered.
func Of(ctx, other context.Context, cause error) *Ctx {
	return &Ctx{Context: ctx, other: other, cause: cause}
}

// Release ends the context and frees what it has registered. Channels that All has returned do not show that end.
func (c *Ctx) Release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.released = true
	if m := c.merged.Load(); m != nil {
		m.stop()
		m.end(nil)
	}
}

// Err implements context.Context.
func (c *Ctx) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	m := c.merged.Load()
	if err := c.other.Err(); err != nil {
		if m != nil {
			m.end(c.why()) // as the watch over other does in a moment: a caller that has the error finds the cause
		}
		return err
	}
	if m != nil {
		return m.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.released {
		return context.Canceled
	}
	return nil
}

// Done implements context.Context.
func (c *Ctx) Done() <-chan struct{} { return c.merge().Done() }

// Value implements context.Context. The context package finds the cause by it, and what to derive contexts from.
func (c *Ctx) Value(key any) any {
	if m := c.merged.Load(); m != nil {
		return m.Value(key)
	}
	if c.Err() != nil {
		return c.merge().Value(key)
	}
	return c.Context.Value(key)
}

func (c *Ctx) merge() *merged {
	if m := c.merged.Load(); m != nil {
		return m
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.merged.Load(); m != nil {
		return m
	}
	m := &merged{stop: func() bool { return false }}
	m.Context, m.end = context.WithCancelCause(c.Context)
	switch {
	case c.released:
		m.end(nil)
	case c.other.Err() != nil: // AfterFunc would do it in a moment
		m.end(c.why())
	default:
		m.stop = context.AfterFunc(c.other, func() { m.end(c.why()) })
	}
	c.merged.Store(m)
	return m
}

func (c *Ctx) why() error {
	if c.cause != nil {
		return c.cause
	}
	return context.Cause(c.other)
}

// All returns the channels of which one is closed when ctx ends, for a select that waits for it. It registers nothing, if
// ctx is a Ctx, or a Ctx of one. Some of the channels are nil.
func All(ctx context.Context) (a, b, c <-chan struct{}) {
	x, ok := ctx.(*Ctx)
	if !ok || x.merged.Load() != nil {
		return ctx.Done(), nil, nil
	}
	if in, ok := x.Context.(*Ctx); ok && in.merged.Load() == nil {
		return in.Context.Done(), in.other.Done(), x.other.Done()
	}
	return x.Context.Done(), x.other.Done(), nil
}
