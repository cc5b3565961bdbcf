package mirror

import "github.com/etcdkit/etcdkit/internal/queue"

// Waiter waits for the admission of one request of this process.
type Waiter struct {
	key     string
	create  int64
	weight  int64
	outcome chan Outcome
}

// Outcome is what became of a waiting request.
type Outcome int

// The outcomes of waiting.
const (
	Admitted Outcome = iota // it is admitted, for as long as its key stands
	Gone                    // its key is gone: evicted, deleted or expired
	TooHeavy                // the limit was lowered below its weight, so it never fits
	Unset                   // somebody has deleted the limit
	Damaged                 // the limit cannot be read
)

// Wait waits for the request with that key and token. Call Forget when the
// outcome is no longer wanted.
func (m *Mirror) Wait(key string, token, weight int64) *Waiter {
	w := &Waiter{key: key, create: token, weight: weight, outcome: make(chan Outcome, 1)}
	m.mu.Lock()
	defer m.mu.Unlock()
	if outcome, done := m.outcome(w); done {
		w.outcome <- outcome
	} else {
		m.waiting[key] = w
	}
	return w
}

// Forget ends the wait.
func (m *Mirror) Forget(w *Waiter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waiting[w.key] == w {
		delete(m.waiting, w.key)
	}
}

// Outcome receives the outcome, once.
func (w *Waiter) Outcome() <-chan Outcome { return w.outcome }

// outcome tells what became of a request, if the view is new enough to tell: a
// view that has not seen the request may lack others before it.
func (m *Mirror) outcome(w *Waiter) (o Outcome, done bool) {
	_, admitted, ok := m.queue.Position(w.key, w.create)
	limit, known := m.queue.Limit()
	switch {
	case !ok:
		return Gone, m.revision >= w.create
	case admitted:
		return Admitted, true
	case known && limit > 0 && !queue.Fits(0, w.weight, limit):
		return TooHeavy, true
	case known:
		return 0, false
	case m.damaged:
		return Damaged, true
	}
	return Unset, true
}
