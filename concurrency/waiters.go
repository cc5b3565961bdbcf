package concurrency

import (
	"cmp"
	"slices"
	"sync"
)

// waiters are the waiting requests of one session in one queue. All of them wait in the same way:
// while the first may be admitted soon they follow the queue, otherwise they sleep. So one watch serves
// them all, and whichever fits is admitted by one event, however many wait.
type waiters struct {
	mu     sync.Mutex
	seats  []*seat // by token
	coming int     // how many requests are being written, which may be before all these
	way    way
	moved  chan struct{} // closed and replaced when way changes
	moot   chan struct{} // has a value when the guide has to look at the requests again
}

// seat is one waiting request.
type seat struct {
	*ticket
	woken chan struct{} // has a value when its key may be gone
}

// way is how requests wait.
type way int

const (
	whole  way = iota // they follow the whole queue, whose mirror runs on when they are served
	asleep            // they are far: the guide watches a few requests for them
	front             // they follow the queue up to their own requests, and only until they are served
)

// comes counts a request that is about to be written, until came is called.
func (w *waiters) comes() (came func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.coming++
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.coming--
	})
}

// enter adds a waiting request. guide is set if its session needs a guide from now on.
func (w *waiters) enter(s *seat, far func(*seat) bool) (guide bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, _ := slices.BinarySearchFunc(w.seats, s, func(a, b *seat) int { return cmp.Compare(a.Token, b.Token) })
	w.seats = slices.Insert(w.seats, at, s)
	switch {
	case w.way == whole:
		return w.sleeps(far)
	case at == 0 || !far(s):
		w.look()
	}
	return false
}

// leave removes a request that waits no more, likewise.
func (w *waiters) leave(s *seat, far func(*seat) bool) (guide bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := slices.Index(w.seats, s)
	w.seats = slices.Delete(w.seats, at, at+1)
	if w.way == whole {
		return w.sleeps(far)
	}
	if at == 0 {
		w.look()
	}
	return false
}

// sleeps has all requests sleep if the first is far. While others are being written it is not known
// which is the first. w.mu is held.
func (w *waiters) sleeps(far func(*seat) bool) bool {
	if len(w.seats) == 0 || w.coming > 1 || !far(w.seats[0]) {
		return false
	}
	w.move(asleep)
	return true
}

// look has the guide look at the requests again.
func (w *waiters) look() {
	signal(w.moot)
}

// move changes how the requests wait. w.mu is held.
func (w *waiters) move(to way) {
	if w.way != to {
		w.way = to
		close(w.moved)
		w.moved = make(chan struct{})
	}
}

// become changes how the requests wait.
func (w *waiters) become(to way) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.move(to)
}

// now returns how the requests wait, and what is closed when that changes.
func (w *waiters) now() (way, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.way, w.moved
}

// first returns the first request, or nil.
func (w *waiters) first() *seat {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.seats) == 0 {
		return nil
	}
	return w.seats[0]
}

// next returns the first request, for the guide. If there is none, the guide has ended.
func (w *waiters) next() *seat {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.seats) == 0 {
		w.move(whole)
		return nil
	}
	return w.seats[0]
}

// last returns the last request, or nil.
func (w *waiters) last() *seat {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.seats) == 0 {
		return nil
	}
	return w.seats[len(w.seats)-1]
}

// newest returns the token of the last request, or 0.
func (w *waiters) newest() int64 {
	if s := w.last(); s != nil {
		return s.Token
	}
	return 0
}

// wakeIf wakes the requests whose keys may be gone.
func (w *waiters) wakeIf(gone func(*seat) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.seats {
		if gone(s) {
			signal(s.woken)
		}
	}
}

// signal gives a channel a value, unless it has one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
