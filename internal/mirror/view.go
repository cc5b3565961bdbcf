package mirror

import (
	"slices"

	"github.com/etcdkit/etcdkit/internal/rank"
)

// View is one state of a queue.
type View struct {
	Revision int64
	Limit    int64
	Known    bool // whether a limit is stored and readable
	Damaged  bool // whether the limit in force cannot be read; Limits has why
	Limits   Limits
	Used     int64 // weight of the holders, and of requests that may be holders
	Through  int64 // greatest token ever admitted, as far as this view shows
	Foreign  int   // keys in the range that are not ours
	Certain  int   // of Holders, those that are known to hold, which are the first: the others may hold
	Holders  []Request
	Waiters  []Request
	Queue    rank.Queue
}

// Requests returns all requests, in order.
func (v *View) Requests() []Request { return slices.Concat(v.Holders, v.Waiters) }

// Unreadable returns why the stored limit cannot be read, or nil.
func (v *View) Unreadable() error { return v.Limits.InForce().Unreadable() }

// Without returns the view's queue as it would be without one request.
func (v *View) Without(key string, token int64) rank.Queue {
	q := v.Queue
	q.Reset(slices.Concat(q.Holders(), q.Waiters()))
	q.Delete(key, token)
	q.Admit()
	return q
}

// View returns the present state. Changed is closed at the next change.
func (m *Mirror) View() (v View, changed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v = View{Revision: m.revision, Limits: m.limits, Used: m.queue.Used(), Through: m.queue.Through(), Damaged: m.limits.InForce().Damaged, Foreign: len(m.foreign)}
	v.Limit, v.Known = m.queue.Limit()
	v.Queue = m.queue
	v.Queue.Reset(slices.Concat(m.queue.Holders(), m.queue.Waiters()))
	v.Holders = m.describe(m.queue.Holders())
	v.Certain = len(v.Holders)
	v.Waiters = m.describe(m.queue.Waiters())
	n, weight := m.mayHold(len(v.Waiters))
	v.Used += weight
	v.Holders, v.Waiters = append(v.Holders, v.Waiters[:n]...), v.Waiters[n:]
	return v, m.changed
}

// mayHold returns how many of the first waiters count as holders, at most so many, and their weight. A limit that was
// lowered just now may not yet say exactly which requests had been admitted before. Until it does, all that may have been
// count as holders. All requests count so if the limit was deleted or cannot be read.
func (m *Mirror) mayHold(most int) (n int, weight int64) {
	_, known := m.queue.Limit()
	for _, e := range m.queue.Waiters()[:most] {
		if known && !m.limits.mayHold(m.queue.Used()+weight, e) {
			break
		}
		n, weight = n+1, weight+e.Weight
	}
	return n, weight
}

// Brief is the state of a queue for the report to one waiter.
type Brief struct {
	Revision int64
	Limit    int64
	Used     int64 // weight of the holders, and of requests before the waiter's that may be holders
	Waiting  int
	Ahead    int  // number of requests before the waiter's
	Waits    bool // whether the waiter's request is in the queue and not admitted
	Holds    bool // whether it is admitted
	Holders  []Request
}

// Brief returns the state for one request, with the first few holders. Its cost does not depend
// on the length of the queue while the limit is known. Changed is closed at the next change.
func (m *Mirror) Brief(key string, token int64, holders int) (b Brief, changed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	first := m.queue.Holders()
	b = Brief{Revision: m.revision, Used: m.queue.Used(), Waiting: len(m.queue.Waiters()) + m.newer, Holders: m.describe(first[:min(len(first), holders)])}
	b.Limit, _ = m.queue.Limit()
	ahead, admitted, ok := m.queue.Position(key, token)
	b.Ahead, b.Waits, b.Holds = ahead, ok && !admitted, admitted
	most := len(m.queue.Waiters())
	if b.Waits {
		most = ahead - len(first)
	}
	n, weight := m.mayHold(most)
	b.Used, b.Waiting = b.Used+weight, b.Waiting-n
	return b, m.changed
}

// Seen returns the revision of the view. Changed is closed at the next change.
func (m *Mirror) Seen() (revision int64, changed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.revision, m.changed
}

// Requests returns how many requests the view shows.
func (m *Mirror) Requests() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.requests)
}

// Ahead returns how many requests are before one, if the view shows it.
func (m *Mirror) Ahead(key string, token int64) (ahead int, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ahead, _, ok = m.queue.Position(key, token)
	return ahead, ok
}

func (m *Mirror) describe(entries []rank.Entry) []Request {
	out := make([]Request, 0, len(entries))
	for _, e := range entries {
		out = append(out, *m.requests[e.Key])
	}
	return out
}
