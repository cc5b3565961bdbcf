package crowd

import "sync"

// waiters are the waiting requests of one session in one queue. All of them wait in the same way:
// while the first may be admitted soon they follow the queue, otherwise they sleep. So one watch serves
// them all, and whichever fits is admitted by one event, however many wait.
type waiters struct {
	mu      sync.Mutex
	first   *Waiter            // the request with the lowest token; the others follow in their order
	last    *Waiter            // that with the greatest one
	byKey   map[string]*Waiter // the same requests
	coming  int                // how many requests are being written, which may be before all these
	mode    Mode
	changed chan struct{} // closed and replaced when the mode changes
	recheck chan struct{} // has a value when the monitor has to look at the requests again
}

// Waiter is one request while it waits.
type Waiter struct {
	Request
	woken chan struct{} // has a value when its key may be gone, or a notice may have come

	before, after *Waiter // of the waiters, by token

	// Its place, for a sleep by a sample: so many requests were before it when so many had left the queue. It is known
	// if it was read, or if a sample has run since its own Txn has counted them.
	ahead, from int64
	placed      bool
}

// Mode is how requests wait.
type Mode int

// The ways to wait.
const (
	Whole  Mode = iota // they follow the whole queue, whose mirror runs on when they are served
	Asleep             // they are far: the monitor watches a few requests for them
	Front              // they follow the queue up to their own requests, and only until they are served
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

// enter adds a waiting request. monitor is set if its session needs a monitor from now on.
func (w *waiters) enter(s *Waiter, crowded func(first *Waiter, count int) bool, far func(*Waiter) bool) (monitor bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.link(s)
	switch {
	case w.mode == Whole:
		return w.sleeps(crowded, w.coming-1) // s itself
	case w.first == s || !far(s):
		w.look()
	}
	return false
}

// settles is for the end of another request's writing, likewise.
func (w *waiters) settles(crowded func(*Waiter, int) bool) (monitor bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mode == Whole && w.sleeps(crowded, w.coming)
}

// leave removes a request that waits no more, likewise.
func (w *waiters) leave(s *Waiter, crowded func(*Waiter, int) bool) (monitor bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.first
	w.unlink(s)
	if w.mode == Whole {
		return w.sleeps(crowded, w.coming)
	}
	if was == s {
		w.look()
	}
	return false
}

// link puts a request in its place. Most come in their order, so the search begins at the last. w.mu is held.
func (w *waiters) link(s *Waiter) {
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
		w.byKey = map[string]*Waiter{}
	}
	w.byKey[s.Key] = s
}

// unlink is the inverse of link. w.mu is held.
func (w *waiters) unlink(s *Waiter) {
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

// sleeps has all requests sleep, until a monitor has looked, if the first is in a crowd. While others are
// being written it is not known which is the first. w.mu is held.
func (w *waiters) sleeps(crowded func(*Waiter, int) bool, others int) bool {
	if w.first == nil || others > 0 || !crowded(w.first, len(w.byKey)) {
		return false
	}
	w.switchTo(Asleep)
	return true
}

// look has the monitor look at the requests again.
func (w *waiters) look() {
	signal(w.recheck)
}

// switchTo changes how the requests wait. w.mu is held.
func (w *waiters) switchTo(to Mode) {
	if w.mode != to {
		w.mode = to
		close(w.changed)
		w.changed = make(chan struct{})
	}
}

// setMode changes how the requests wait.
func (w *waiters) setMode(to Mode) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.switchTo(to)
}

// now returns how the requests wait, and what is closed when that changes.
func (w *waiters) now() (Mode, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mode, w.changed
}

// ends returns the first request and the last one, or nil.
func (w *waiters) ends() (first, last *Waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.first, w.last
}

// next returns the first request, for the monitor. If there is none, the monitor has ended.
func (w *waiters) next() *Waiter {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.first == nil {
		w.switchTo(Whole)
	}
	return w.first
}

// count returns how many requests wait.
func (w *waiters) count() int {
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

// wakeIf wakes the requests for which there may be something to do.
func (w *waiters) wakeIf(gone func(*Waiter) bool) {
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
