// Package batch sends together what is asked for at the same time: a request costs the
// client and etcd more by being one than by what is in it.
//
// Who comes while few requests are under way sends his own, at once. Others wait until
// one of those has ended, and those who have gathered go in its place, in one request. So a
// single caller waits for nothing, and the more there are the more go together.
//
// Guaranteed: nobody waits for company longer than a bound, so a request that hangs
// holds up only who is in it. Not guaranteed: any order.
package batch

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Queue gathers what is to be sent. It is safe for concurrent use; its fields are set
// before.
type Queue[T comparable] struct {
	// AtOnce is how many requests are under way before others wait for company.
	AtOnce int
	// Most is how many go in one request.
	Most int
	// Wait bounds how long one waits for company.
	Wait time.Duration
	// Fits tells whether x may go in one request with those, or is nil.
	Fits func(with []T, x T) bool
	// Send sends them in one request, and tells each.
	Send func(batch []T)
	// Go starts a goroutine, or tells that none may be started any more.
	Go func(func()) bool

	mu      sync.Mutex
	running int
	waiting []T
}

// Join has x sent: by alone, which the caller's goroutine runs, or by Send, which closes
// sent. It returns ctx's error if that ends while x is under way with others; alone sees to
// its ctx by itself.
func (q *Queue[T]) Join(ctx context.Context, x T, sent <-chan struct{}, alone func()) error {
	if q.enter(x) {
		defer q.next()
		alone()
		return nil
	}
	t := time.NewTimer(q.Wait)
	defer t.Stop()
	select {
	case <-sent:
		return nil
	case <-t.C:
	case <-ctx.Done():
	}
	if q.leave(x) {
		alone()
		return nil
	}
	select {
	case <-sent:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Waiting returns how many wait for company.
func (q *Queue[T]) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// enter tells whether x may go now. Otherwise it waits for others to end.
func (q *Queue[T]) enter(x T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running >= q.AtOnce {
		q.waiting = append(q.waiting, x)
		return false
	}
	q.running++
	return true
}

// leave takes x back if it was not sent yet.
func (q *Queue[T]) leave(x T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, x)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	return i >= 0
}

// next is for a request that has ended: those who have gathered meanwhile go in its place.
func (q *Queue[T]) next() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.running--
		return
	}
	batch, rest := q.take()
	if q.Go(func() {
		q.Send(batch)
		q.next()
	}) {
		q.waiting = rest
	} else {
		q.running-- // each goes alone before long
	}
}

// take returns those who go in one request, in the order in which they came, and the rest.
func (q *Queue[T]) take() (batch, rest []T) {
	for i, x := range q.waiting {
		if len(batch) == q.Most {
			rest = append(rest, q.waiting[i:]...)
			break
		}
		if len(batch) == 0 || q.Fits == nil || q.Fits(batch, x) {
			batch = append(batch, x)
		} else {
			rest = append(rest, x)
		}
	}
	return batch, rest
}
