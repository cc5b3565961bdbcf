// Package batch sends together what is requested at the same time: much of the cost of a
// request, for the client and for etcd, does not depend on its content.
//
// While few requests are under way, a caller sends its own at once. Further callers wait until a
// request has ended; all that wait then share the next one. So a single caller waits for
// nothing, and the more callers there are, the more share a request.
//
// Guaranteed: no caller waits for others longer than a bound, so a request that hangs delays
// only its own callers. Not guaranteed: any order.
package batch

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/internal/either"
)

// Item is a pointer to what is sent, which has a Place in it.
type Item interface {
	comparable
	place() *Place
}

// Place is the place of an item in a Queue. The zero value is ready, for one item that is sent once.
type Place struct {
	sent  chan struct{} // made when the item begins to wait
	since time.Time
	late  bool // set before sent is closed
}

func (p *Place) place() *Place { return p }

// Sent returns a channel that is closed when the wait of an item ends that Enter has not let in: Send has called Notify, or
// the item is Late. It must not be called of another one.
func (p *Place) Sent() <-chan struct{} { return p.sent }

// Late reports whether an item has waited as long as it may: its caller sends it alone. It must not be called before the
// channel of Sent is closed.
func (p *Place) Late() bool { return p.late }

// Notify ends the wait of an item that Send has sent.
func (p *Place) Notify() { close(p.sent) }

// Queue gathers what is to be sent. It is safe for concurrent use once its fields are set.
type Queue[T Item] struct {
	// AtOnce is how many requests may be under way before further callers wait.
	AtOnce int
	// Most is how many callers share one request.
	Most int
	// Wait bounds how long a caller waits for others.
	Wait time.Duration
	// Fits reports whether x may share a request with those, or is nil.
	Fits func(with []T, x T) bool
	// Send sends a batch in one request, and calls Notify of each item.
	Send func(batch []T)
	// Go starts a goroutine, or returns false if none may be started any more.
	Go func(func()) bool

	mu      sync.Mutex
	running int
	waiting []T         // in order of arrival
	timer   *time.Timer // one for all that wait; nil before the first
	armed   bool        // it runs
}

// Turn is how an item is sent.
type Turn int

// The turns.
const (
	Together Turn = iota // it was sent with others
	First                // its caller sends it alone, and calls Next then
	Late                 // its caller sends it alone
)

// Join waits until x was sent with others, or returns that the caller has to send it alone: at once while few requests are
// under way, later if it has waited as long as it may, or if ctx has ended, which the caller must watch itself. It returns
// ctx's error if ctx ends while x is under way with others.
func (q *Queue[T]) Join(ctx context.Context, x T) (Turn, error) {
	if q.Enter(x) {
		return First, nil
	}
	p := x.place()
	a, b, c := either.All(ctx)
	select {
	case <-p.sent:
		return p.turn(), nil
	case <-a:
	case <-b:
	case <-c:
	}
	if q.Leave(x) {
		return Late, nil
	}
	select {
	case <-p.sent:
		return p.turn(), nil
	default:
		return Together, ctx.Err()
	}
}

func (p *Place) turn() Turn {
	if p.late {
		return Late
	}
	return Together
}

// Waiting returns how many callers wait for others.
func (q *Queue[T]) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// Enter reports whether x may be sent now: then its caller sends it alone, and calls Next. Otherwise x waits for a request
// to end: see Sent and Leave.
func (q *Queue[T]) Enter(x T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running < q.AtOnce {
		q.running++
		return true
	}
	p := x.place()
	p.sent, p.since = make(chan struct{}), time.Now()
	q.waiting = append(q.waiting, x)
	q.arm()
	return false
}

// arm has the timer run while items wait. The caller holds mu. The timer is not stopped when none waits any more: one that
// fires then costs less than stopping it at each request.
func (q *Queue[T]) arm() {
	switch {
	case q.armed || len(q.waiting) == 0:
		return
	case q.timer == nil:
		q.timer = time.AfterFunc(q.Wait, q.overdue)
	default:
		q.timer.Reset(q.Wait - time.Since(q.waiting[0].place().since))
	}
	q.armed = true
}

// overdue ends the wait of those that have waited as long as they may.
func (q *Queue[T]) overdue() {
	q.mu.Lock()
	defer q.mu.Unlock()
	now, n := time.Now(), 0
	for _, x := range q.waiting {
		p := x.place()
		if now.Sub(p.since) < q.Wait {
			break
		}
		p.late = true
		close(p.sent)
		n++
	}
	q.waiting = slices.Delete(q.waiting, 0, n)
	q.armed = false
	q.arm()
}

// Leave takes x back, and reports whether it still waited.
func (q *Queue[T]) Leave(x T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, x)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	return i >= 0
}

// Next ends a request: all that wait share the one that replaces it.
func (q *Queue[T]) Next() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.running--
		return
	}
	batch, rest := q.take()
	if q.Go(func() {
		q.Send(batch)
		clear(batch) // which those that wait may share an array with: it would keep what was sent
		q.Next()
	}) {
		q.waiting = rest
	} else {
		q.running-- // each is sent alone after Wait
	}
}

// take returns the callers that share the next request, in order of arrival, and the rest.
func (q *Queue[T]) take() (batch, rest []T) {
	n := 0
	for n < min(len(q.waiting), q.Most) && (n == 0 || q.Fits == nil || q.Fits(q.waiting[:n], q.waiting[n])) {
		n++
	}
	batch = q.waiting[:n:n]
	if n == len(q.waiting) || n == q.Most {
		return batch, q.waiting[n:]
	}
	for i, x := range q.waiting[n:] {
		if len(batch) == q.Most {
			return batch, append(rest, q.waiting[n+i:]...)
		}
		if q.Fits(batch, x) {
			batch = append(batch, x)
		} else {
			rest = append(rest, x)
		}
	}
	return batch, rest
}
