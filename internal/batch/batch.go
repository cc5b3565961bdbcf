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
)

// Queue gathers what is to be sent. It is safe for concurrent use once its fields are set.
type Queue[T comparable] struct {
	// AtOnce is how many requests may be under way before further callers wait.
	AtOnce int
	// Most is how many callers share one request.
	Most int
	// Wait bounds how long a caller waits for others.
	Wait time.Duration
	// Fits reports whether x may share a request with those, or is nil.
	Fits func(with []T, x T) bool
	// Send sends a batch in one request, and notifies each caller.
	Send func(batch []T)
	// Go starts a goroutine, or returns false if none may be started any more.
	Go func(func()) bool

	mu      sync.Mutex
	running int
	waiting []T
}

// Join has x sent: by alone, in the caller's goroutine, or by Send, which closes sent. It
// returns ctx's error if ctx ends while x is under way with others; alone must watch ctx itself.
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

// Waiting returns how many callers wait for others.
func (q *Queue[T]) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// enter reports whether x may be sent now. Otherwise it waits for a request to end.
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

// leave takes x back, and reports whether it was not sent yet.
func (q *Queue[T]) leave(x T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, x)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	return i >= 0
}

// next ends a request: all that wait share the one that replaces it.
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
		q.running-- // each is sent alone after Wait
	}
}

// take returns the callers that share the next request, in order of arrival, and the rest.
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
