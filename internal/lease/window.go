package lease

import (
	"sync"
	"time"
)

// window is the span of time in which a lease may be trusted. Time is what the
// caller says it is, so that it can be tested without waiting.
type window struct {
	ttl, margin time.Duration

	mu       sync.Mutex
	deadline time.Time
	closed   bool
}

// renewed extends the window by an acknowledged renewal that was sent at that
// time, and tells whether it did. A window that has ended stays so.
func (w *window) renewed(sent, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || passed(w.deadline, now) {
		w.closed = true
		return false
	}
	if d := sent.Add(w.ttl - w.margin); d.After(w.deadline) {
		w.deadline = d
	}
	return true
}

// open tells whether the window is still open. It never opens again.
func (w *window) open(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if passed(w.deadline, now) {
		w.closed = true
	}
	return !w.closed
}

func (w *window) until() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.deadline
}

// passed tells whether a deadline has come by either clock. The monotonic clock
// does not run while a machine is suspended, the wall clock does; it may also be
// set, and a step forward can only end trust early.
func passed(deadline, now time.Time) bool {
	return !now.Before(deadline) || !now.Round(0).Before(deadline.Round(0))
}
