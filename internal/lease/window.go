package lease

import (
	"sync"
	"time"
)

// window is the span of time in which a lease may be trusted. The caller passes the time, so
// that tests need not wait.
type window struct {
	ttl, margin time.Duration

	mu       sync.Mutex
	deadline Moment
	closed   bool
}

// renewed extends the window by an acknowledged renewal that was sent at that time, and reports
// whether it did. A window that has ended stays ended.
func (w *window) renewed(sent, now Moment) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || passed(w.deadline, now) {
		w.closed = true
		return false
	}
	if d := sent.add(w.ttl - w.margin); d.After(w.deadline.Time) {
		w.deadline = d
	}
	return true
}

// open reports whether the window is still open. It never opens again.
func (w *window) open(now Moment) bool {
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
	return w.deadline.Time
}
