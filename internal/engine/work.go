package engine

import (
	"context"
	"sync"
	"time"
)

// relation says what a call is for Close of its session.
type relation int

const (
	fresh  relation = iota // new work: refused once Close has begun
	part                   // of a permit, a run or an attempt that Close waits for: refused once none of these is left
	helper                 // it serves such parts, as a share of a rate does: likewise, and Close does not wait for it before
)

// work is what Close of a session waits for: its live permits, runs and attempts, and after these their helpers. It is
// safe for concurrent use.
type work struct {
	// Three contexts end one after the other. All end with the client.
	accept   context.Context // ends when Close begins: no new work
	refuse   context.CancelFunc
	working  context.Context // ends when Close waits for no work any more: no further parts of it
	settle   context.CancelFunc
	alone    context.Context // ends when no helper is live after that
	unhelped context.CancelFunc

	mu      sync.Mutex
	live    int           // permits, runs and attempts
	helpers int           // those of them that serve the others
	idle    chan struct{} // closed when Close has begun and none is live
	closing bool          // Close has begun
	settled bool          // and none is live but helpers, or its ctx has ended
}

// newWork returns a session's work, of which there is none yet. No new work is accepted once the client is closed. open is the
// session's context, with which all work ends.
func newWork(client, open context.Context) *work {
	w := &work{idle: make(chan struct{})}
	w.accept, w.refuse = context.WithCancel(client)
	w.working, w.settle = context.WithCancel(open)
	w.alone, w.unhelped = context.WithCancel(open)
	return w
}

// add counts one more permit, run or attempt. It returns false if Close has begun and waits for no work of which this
// could be a part: then nothing is granted any more.
func (w *work) add(as relation) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing && (as == fresh || w.settled) {
		return false
	}
	w.live++
	if as == helper {
		w.helpers++
	}
	return true
}

// end counts so many less, with so many helpers among them.
func (w *work) end(n, helpers int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.live -= n
	w.helpers -= helpers
	if n > 0 && w.closing {
		w.ebb()
	}
}

// close has no new work accepted.
func (w *work) close() {
	w.mu.Lock()
	if !w.closing {
		w.closing = true
		w.ebb()
	}
	w.mu.Unlock()
	w.refuse()
}

// ebb finds what is left. w.mu is held.
func (w *work) ebb() {
	if w.settled || w.live == w.helpers {
		w.settleNow()
	}
	if w.live == 0 {
		close(w.idle)
	}
}

// settleNow ends the wait for work: no part or helper is counted from then on. w.mu is held.
func (w *work) settleNow() {
	w.settled = true
	w.settle()
	if w.helpers == 0 {
		w.unhelped()
	}
}

// awaitHelpers ends the wait for work, and lets the helpers end for up to a second, or until over ends: the share of a slow
// rate stores the tokens that are left.
func (w *work) awaitHelpers(over context.Context) {
	w.mu.Lock()
	w.settleNow()
	w.mu.Unlock()
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case <-w.alone.Done():
	case <-over.Done():
	case <-t.C:
	}
}
