package idempotency

import "sync"

// remembered bounds what a warnings remembers.
const remembered = 1024

// warnings remembers what was logged: a client repeats a refused request, and each repetition would be
// a line about the same thing. It is safe for concurrent use.
type warnings struct {
	mu   sync.Mutex
	said map[string]bool
}

// first reports whether something is to be logged. If too much is remembered, all is forgotten.
func (w *warnings) first(what string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.said[what] {
		return false
	}
	if w.said == nil || len(w.said) >= remembered {
		w.said = map[string]bool{}
	}
	w.said[what] = true
	return true
}
