// Package life is what the handles of a session share while they live: a context, the
// first cause of its end, a bound in time, and trust by the clocks. What a handle holds in
// etcd, how it is settled and what is reported about it is the handle's own.
//
//	       Begin           Halt
//	   ───────────▶ live ─────────▶ halted     halted: the bound does not apply
//	                 │   ◀─────────   │
//	                 │     Resume     │
//	      End, bound │                │  End, or the end of trust
//	or trust's end   ▼                ▼
//	               ended ◀────────────┘        for good, with the first cause
package life

import (
	"context"
	"sync"
	"time"
)

// Trust is the lease that a life depends on. Its methods are called without a lock of the
// life, and may end it.
type Trust interface {
	// Valid reports whether the lease may be trusted now, by the clocks.
	Valid() bool
	// Deadline returns until when it may be trusted unless it is renewed.
	Deadline() time.Time
}

// Handle is what has a life, and says how that ends by itself.
type Handle interface {
	// LostCause returns the cause of a life whose trust has ended.
	LostCause() error
	// LateCause returns the cause of a life whose bound has passed.
	LateCause() error
	// Ended is called once, without a lock, when Err or the timer has ended the life with one
	// of these causes; never after End.
	Ended(cause error)
}

// Life is safe for concurrent use once it has begun. It must not be copied.
type Life struct {
	trust  Trust
	handle Handle
	parent context.Context // of ctx

	mu     sync.Mutex
	cause  error
	first  bool            // it has ended, and before its parent
	halted bool            // its bound does not apply
	until  time.Time       // of the bound, or zero
	timer  *time.Timer     // nil before the first bound
	ctx    context.Context // nil until its end is waited for, as is cancel: many lives end before
	cancel context.CancelCauseFunc
	over   *over // nil until the loss of a hold is waited for
}

// Begin begins a life without a bound, which is a part of its handle. Its context is derived from ctx.
func (l *Life) Begin(ctx context.Context, trust Trust, h Handle) {
	l.parent, l.trust, l.handle = ctx, trust, h
}

// Context returns the context of the life, which ends when the life ends, with its cause. It costs nothing until its end is
// waited for.
func (l *Life) Context() context.Context { return (*view)(l) }

// view is a life as its context.
type view Life

// Deadline implements context.Context.
func (v *view) Deadline() (time.Time, bool) { return v.parent.Deadline() }

// Done implements context.Context.
func (v *view) Done() <-chan struct{} { return (*Life)(v).awaited().Done() }

// Err implements context.Context.
func (v *view) Err() error { return v.present().Err() }

// Value implements context.Context. The context package finds the cause by it, and what to derive contexts from.
func (v *view) Value(key any) any {
	if u := (*Life)(v).under(v.parent, key); u != nil {
		return u
	}
	return v.present().Value(key)
}

// present returns the context that says how the life is now: the parent as long as neither has ended and the end is not
// waited for.
func (v *view) present() context.Context {
	l := (*Life)(v)
	l.mu.Lock()
	ctx, ended := l.ctx, l.cause != nil
	l.mu.Unlock()
	switch {
	case ctx != nil:
		return ctx
	case ended:
		return l.awaited()
	}
	return l.parent
}

// awaited returns the context of which the end can be waited for.
func (l *Life) awaited() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		parent := l.parent
		if l.first { // otherwise the cause of a parent that has ended since would count
			parent = context.WithoutCancel(parent)
		}
		l.ctx, l.cancel = context.WithCancelCause(parent)
		if l.cause != nil {
			l.cancel(l.cause)
		}
	}
	return l.ctx
}

// End ends the life with a cause, and reports whether this call did. Cause
// and the context change in one step: from then on Cause, Err and context.Cause of Context
// agree, unless the ctx given to Begin had ended before.
func (l *Life) End(cause error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end(cause)
}

// end is End. l.mu is held.
func (l *Life) end(cause error) bool {
	if l.cause != nil {
		return false
	}
	l.cause = cause
	l.disarm()
	if l.over != nil {
		l.over.finish()
	}
	if l.ctx != nil {
		l.cancel(cause)
	} else {
		l.first = l.parent.Err() == nil
	}
	return true
}

// Interrupt ends the context of the life with a cause, unless it has ended. It does not end the life: Err and Cause do not
// report it, and the bound and trust end the life as before.
func (l *Life) Interrupt(cause error) {
	l.awaited()
	l.cancel(cause)
}

// Cause returns why the life has ended, or nil. It does not read the clocks.
func (l *Life) Cause() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// Err returns nil while the life lasts, and its cause from then on. It reads the clocks, so it
// is right even after a pause of the process, before any timer has fired.
func (l *Life) Err() error {
	l.mu.Lock()
	cause, late := l.cause, l.late()
	l.mu.Unlock()
	switch {
	case cause != nil:
		return cause
	case !l.trust.Valid(): // checked before the bound: another may hold by now, which matters more
		if cause := l.handle.LostCause(); l.End(cause) {
			l.handle.Ended(cause)
		}
	case late:
		l.pass()
	}
	return l.Cause()
}

// Deadline returns when the life ends unless something changes: the earlier of the bound and the
// deadline of trust, which moves with each renewal.
func (l *Life) Deadline() time.Time {
	d := l.trust.Deadline()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.until.IsZero() && !l.halted && l.until.Before(d) {
		return l.until
	}
	return d
}

// Bound has the life end at a time, be it earlier or later than before. It returns the cause
// if the life has ended, and changes nothing then.
func (l *Life) Bound(until time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == nil {
		l.until = until
		l.arm()
	}
	return l.cause
}

// Halt suspends the bound: an outcome is being written, and only the end of trust, or End,
// ends the life. It does nothing to a life that has ended.
func (l *Life) Halt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.halted = true
}

// Resume has the bound apply again after Halt. A bound that has passed meanwhile ends the
// life at once, by the timer.
func (l *Life) Resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.halted = false
	if l.cause == nil {
		l.arm()
	}
}

// late reports whether the bound has passed. l.mu is held.
func (l *Life) late() bool {
	return !l.until.IsZero() && !l.halted && !time.Now().Before(l.until)
}

// arm starts the timer for the bound as it is. l.mu is held.
func (l *Life) arm() {
	l.disarm()
	if !l.until.IsZero() {
		l.timer = time.AfterFunc(time.Until(l.until), l.pass)
	}
}

func (l *Life) disarm() {
	if l.timer != nil {
		l.timer.Stop()
	}
}

// pass ends a life whose bound has passed, unless the bound was moved or halted meanwhile.
func (l *Life) pass() {
	cause := l.handle.LateCause()
	l.mu.Lock()
	ended := l.late() && l.end(cause)
	l.mu.Unlock()
	if ended {
		l.handle.Ended(cause)
	}
}
