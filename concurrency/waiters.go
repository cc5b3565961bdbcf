package concurrency

import "sync"

// waiters are the waiting requests of one session in one queue. All of them wait in the same way:
// while the first may be admitted soon they follow the queue, otherwise they sleep. So one watch serves
// them all, and whichever fits is admitted by one event, however many wait.
type waiters struct {
	mu      sync.Mutex
	first   *waiter            // the request with the lowest token; the others follow in their order
	last    *waiter            // that with the greatest one
	byKey   map[string]*waiter // the same requests
	coming  int                // how many requests are being written, which may be before all these
	way     way
	moved   chan struct{} // closed and replaced when way changes
	recheck chan struct{} // has a value when the guide has to look at the requests again
}

// waiter is one waiting request.
type waiter struct {
	*ticket
	woken chan struct{} // has a value when its key may be gone

	before, after *waiter // of the waiters, by token
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
func (w *waiters) enter(s *waiter, crowded func(first *waiter, own int) bool, far func(*waiter) bool) (guide bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.link(s)
	switch {
	case w.way == whole:
		return w.sleeps(crowded, w.coming-1) // s itself
	case w.first == s || !far(s):
		w.look()
	}
	return false
}

// settles is for the end of another request's writing, likewise.
func (w *waiters) settles(crowded func(*waiter, int) bool) (guide bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.way == whole && w.sleeps(crowded, w.coming)
}

// leave removes a request that waits no more, likewise.
func (w *waiters) leave(s *waiter, crowded func(*waiter, int) bool) (guide bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.first
	w.unlink(s)
	if w.way == whole {
		return w.sleeps(crowded, w.coming)
	}
	if was == s {
		w.look()
	}
	return false
}

// link puts a request in its place. Most come in their order, so the search begins at the last. w.mu is held.
func (w *waiters) link(s *waiter) {
	s.before = w.last
	for s.before != nil && s.before.Token > s.Token {
		s.before = s.before.before
	}
	if s.before == nil {
		s.after, w.first = w.first, s
	} else {
		s.after, s.before.after = s.before.after, s
	}
	if s.after == nil {
		w.last = s
	} else {
		s.after.before = s
	}
	if w.byKey == nil {
		w.byKey = map[string]*waiter{}
	}
	w.byKey[s.Key] = s
}

// unlink is the inverse of link. w.mu is held.
func (w *waiters) unlink(s *waiter) {
	if s.before == nil {
		w.first = s.after
	} else {
		s.before.after = s.after
	}
	if s.after == nil {
		w.last = s.before
	} else {
		s.after.before = s.before
	}
	s.before, s.after = nil, nil
	if w.byKey[s.Key] == s { // otherwise the key is that of a later request
		delete(w.byKey, s.Key)
	}
}

// sleeps has all requests sleep, until a guide has looked, if the first is in a crowd. While others are
// being written it is not known which is the first. w.mu is held.
func (w *waiters) sleeps(crowded func(*waiter, int) bool, others int) bool {
	if w.first == nil || others > 0 || !crowded(w.first, len(w.byKey)) {
		return false
	}
	w.move(asleep)
	return true
}

// look has the guide look at the requests again.
func (w *waiters) look() {
	signal(w.recheck)
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

// ends returns the first request and the last one, or nil.
func (w *waiters) ends() (first, last *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.first, w.last
}

// next returns the first request, for the guide. If there is none, the guide has ended.
func (w *waiters) next() *waiter {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.first == nil {
		w.move(whole)
	}
	return w.first
}

// own returns how many requests wait.
func (w *waiters) own() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.byKey)
}

// newest returns the token of the last request, or 0.
func (w *waiters) newest() int64 {
	if _, last := w.ends(); last != nil {
		return last.Token
	}
	return 0
}

// wake wakes the request with that key, which may be gone.
func (w *waiters) wake(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.byKey[key]; s != nil {
		signal(s.woken)
	}
}

// wakeIf wakes the requests whose keys may be gone.
func (w *waiters) wakeIf(gone func(*waiter) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for s := w.first; s != nil; s = s.after {
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
