package mirror

import "github.com/etcdkit/etcdkit/internal/rank"

// Waiter waits for the admission of one request of this process.
type Waiter struct {
	key     string
	create  int64
	weight  int64
	found   Found
	outcome chan Outcome

	suggested bool
	upTo      int64
	limits    Limits
}

// Found is what the Txn that wrote a request has read besides. A watch that has lost the event of
// an earlier request would take this one for admitted too early; Found prevents that.
type Found struct {
	Known    bool
	Ahead    int   // how many requests were before it
	Heavy    bool  // some of them, or the request itself, have a weight above 1
	LimitRev int64 // mod revision of the limit, 0 if it is not stored
}

// Outcome is the outcome of a waiting request.
type Outcome int

// The outcomes of waiting.
const (
	Admitted Outcome = iota // it is admitted, for as long as its key exists
	Gone                    // its key is gone: evicted, deleted or expired
	TooHeavy                // the limit was lowered below its weight, so it never fits
	Unset                   // the limit was deleted
	Damaged                 // the limit cannot be read
)

// Wait waits for the request with that key and token. Call Forget when the outcome is no longer
// wanted.
func (m *Mirror) Wait(key string, token, weight int64, found Found) *Waiter {
	w := &Waiter{key: key, create: token, weight: weight, found: found, outcome: make(chan Outcome, 1)}
	m.mu.Lock()
	defer m.mu.Unlock()
	if outcome, done := m.outcome(w); done {
		m.finish(w, outcome)
	} else {
		m.waiting[key] = w
		if m.revision < token {
			m.unseen[key] = w
		}
	}
	return w
}

// Forget ends the wait. It returns false if the outcome has come before.
func (m *Mirror) Forget(w *Waiter) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waiting[w.key] != w {
		return false
	}
	delete(m.waiting, w.key)
	delete(m.unseen, w.key)
	return true
}

// Gone reports whether a request that existed is gone, if the view is new enough to know. Changed
// is closed at the next change.
func (m *Mirror) Gone(key string, token int64) (gone bool, changed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, _, ok := m.queue.Position(key, token)
	return !ok && m.missed(token), m.changed
}

// missed reports whether a request with that token which the view does not show is gone, if
// the view is new enough to know.
func (m *Mirror) missed(token int64) bool {
	if m.revision >= token && m.listed < token { // or the watch has lost the event by which it came
		m.ListAgain()
	}
	return m.listed >= token
}

// Outcome returns a channel that receives the outcome, once.
func (w *Waiter) Outcome() <-chan Outcome { return w.outcome }

// Suggested reports whether the limit by which the outcome was found may be newer or older than the
// rest of the view: another watch brings it. Then UpTo and Limits are known.
func (w *Waiter) Suggested() bool { return w.suggested }

// UpTo returns the weight of the request and of all before it when the outcome was found. It only falls
// afterwards.
func (w *Waiter) UpTo() int64 { return w.upTo }

// Limits returns the records by which the outcome was found.
func (w *Waiter) Limits() Limits { return w.limits }

// outcome returns the outcome of a request, if the view is new enough to know: a view that has
// not seen the request may lack others before it.
func (m *Mirror) outcome(w *Waiter) (o Outcome, done bool) {
	_, admitted, ok := m.queue.Position(w.key, w.create)
	limit, known := m.queue.Limit()
	switch {
	case !ok:
		return Gone, m.missed(w.create)
	case admitted && m.doubts(w):
		m.ListAgain()
		return 0, false
	case admitted:
		return Admitted, true
	case known && rank.TooHeavy(w.weight, limit):
		return TooHeavy, true
	case known:
		return 0, false
	case m.limits.InForce().Damaged:
		return Damaged, true
	case m.based: // the process that misses the default stores it
		return 0, false
	}
	return Unset, true
}

// ListAgain requests a list, after which every waiter is checked again.
func (m *Mirror) ListAgain() {
	select {
	case m.again <- struct{}{}:
	default:
	}
}

// doubts reports whether the view may lack a request that came before this one. A list that is
// newer than the request lacks none, and later events can only be of later requests or of
// deletions. Without such a list, as many requests must have been before it here as in etcd; that
// is enough where all have the same weight, while each one that the view wrongly shows is in the place
// of one that it lacks. One whose end was lost is gone from the view when its key is used again.
func (m *Mirror) doubts(w *Waiter) bool {
	if m.listed >= w.create {
		return false
	}
	r := m.requests[w.key]
	return !w.found.Known || w.found.Heavy || r.ahead != w.found.Ahead || m.limits.Own.Rev < w.found.LimitRev || m.missing > w.create
}
