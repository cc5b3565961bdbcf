package engine

import (
	"context"
	"sync"
	"time"
)

// callbacks are the goroutines of a session that call functions of the program: a hook, or the function of a run. One of these
// may never return, so Close does not wait for it without a bound, as it does for those of Background. It is safe for
// concurrent use.
type callbacks struct {
	mu    sync.Mutex
	n     int
	ended bool          // none is started any more
	none  chan struct{} // closed when ended is set and none is left
}

// Callback is Background for an fn that calls a function of the program. Close waits for it until two seconds after its ctx and
// the holders have ended.
func (c *callbacks) Callback(fn func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	c.n++
	go func() {
		defer c.returned()
		fn()
	}()
	return true
}

// CallbackLater is Callback for an fn whose ctx outlasts the session by 750 ms. Close leaves such a goroutine 250 ms after that at the
// earliest, so that one that ends with its ctx is not reported as a function of the program that does not return.
func CallbackLater(s *Session, fn func(context.Context)) bool {
	return s.Callback(func() {
		ctx, cancel := context.WithCancel(s.late)
		defer cancel()
		defer context.AfterFunc(s.ctx, func() { time.AfterFunc(750*time.Millisecond, cancel) })()
		fn(ctx)
	})
}

// Report calls what reports to the hooks by Callback, or, after Close, in the goroutine of the caller.
func (c *callbacks) Report(report func()) {
	if !c.Callback(report) {
		report()
	}
}

func (c *callbacks) returned() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n--
	c.closeNone()
}

// end has none started any more. It returns a channel that is closed when none is left.
func (c *callbacks) end() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.closeNone()
	return c.none
}

// closeNone closes none if it is time. c.mu is held.
func (c *callbacks) closeNone() {
	if c.ended && c.n == 0 {
		close(c.none)
	}
}
