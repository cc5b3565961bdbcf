package mirror

import "sync/atomic"

// History is etcd's history as the calls of a session have seen it, until a backup is restored: another History follows
// then. It is safe for concurrent use.
type History struct {
	seen atomic.Int64
	over chan struct{}
}

// NewHistory returns a history of which nothing was seen.
func NewHistory() *History { return &History{over: make(chan struct{})} }

// Seen returns the greatest revision that was met.
func (h *History) Seen() int64 { return h.seen.Load() }

// See records a revision that was met.
func (h *History) See(revision int64) {
	for {
		seen := h.seen.Load()
		if revision <= seen || h.seen.CompareAndSwap(seen, revision) {
			return
		}
	}
}

// End records that the history was taken back. It is called once.
func (h *History) End() { close(h.over) }

// Over returns a channel that is closed then. A watch that was created before waits for the revisions of that history: etcd's
// client resumes it from there.
func (h *History) Over() <-chan struct{} { return h.over }
