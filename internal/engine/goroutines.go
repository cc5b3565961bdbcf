package engine

import (
	"context"
	"sync"
	"time"
)

// goroutines are those of a session, for which Close waits. Callbacks are those that call functions of the program: a hook, or the
// function of a run. One of these may never return, so Close does not wait for it without a bound. It is safe for concurrent use.
type goroutines struct {
	wg sync.WaitGroup // of Background

	mu        sync.Mutex
	ending    bool          // none of Background is started any more
	ended     bool          // nor a callback
	callbacks int           // how many there are
	returned  chan struct{} // closed when ended is set and no callback is left
}

// Background runs fn in a goroutine that Close waits for, so fn must not call a function of the program:
// see Callback. After Close it does nothing and returns false: the lease, with all its keys, is gone then.
func (g *goroutines) Background(fn func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ending {
		return false
	}
	g.wg.Go(fn)
	return true
}

// Callback is Background for an fn that calls a function of the program. Close waits for it until two seconds after its ctx and
// the holders have ended.
func (g *goroutines) Callback(fn func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return false
	}
	g.callbacks++
	go func() {
		defer g.callbackReturned()
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
func (g *goroutines) Report(report func()) {
	if !g.Callback(report) {
		report()
	}
}

func (g *goroutines) callbackReturned() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.callbacks--
	g.closeReturned()
}

// end has none started any more, and waits for those of Background. One of these may report the end of the lease to the hooks
// until it has returned, so callbacks end after them: a hook that never returns would keep the goroutine, and Close. The channel
// is closed when no callback is left.
func (g *goroutines) end() (returned <-chan struct{}) {
	g.mu.Lock()
	g.ending = true
	g.mu.Unlock()
	g.wg.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	g.closeReturned()
	return g.returned
}

// closeReturned closes returned if it is time. g.mu is held.
func (g *goroutines) closeReturned() {
	if g.ended && g.callbacks == 0 {
		close(g.returned)
	}
}
