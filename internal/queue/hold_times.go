package queue

import (
	"sync"
	"time"
)

// HoldTimes records for how long permits of a limiter were held, to estimate when one is free. Older
// ones count less. It is safe for concurrent use.
type HoldTimes struct {
	mu      sync.Mutex
	sum     float64 // of seconds
	squares float64
}

// holdDecay is by how much an earlier hold counts less after each later one: the last 50 or so count.
const holdDecay = 0.98

// Add records one.
func (h *HoldTimes) Add(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := d.Seconds()
	h.sum, h.squares = h.sum*holdDecay+s, h.squares*holdDecay+s*s
}

// mostRetryAfter bounds the estimate, which a time.Duration might not hold.
const mostRetryAfter = 100 * 365 * 24 * time.Hour

// RetryAfter estimates when a request that found so many others waiting would be admitted: a permit
// that is held at any moment is held for the mean of the squares over twice the mean, from then on,
// which is longer than half of the mean if a few are held long (N13 in internal/proof/tested-failures.md). It is
// 0 if that is unknown.
func (h *HoldTimes) RetryAfter(waiting, limit int) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if limit <= 0 || h.sum <= 0 {
		return 0
	}
	rest := h.squares / (2 * h.sum)
	after := rest * float64(waiting+1) / float64(limit) * float64(time.Second)
	return time.Duration(min(after, float64(mostRetryAfter)))
}
