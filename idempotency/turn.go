package idempotency

import (
	"context"
	"sync"
)

// turn is the right of one at a time to do something, for which others wait until their ctx ends. The zero value is free.
type turn struct {
	mu    sync.Mutex
	taken bool
	freed chan struct{} // closed when it is free again; nil while none waits
}

// take waits for the turn, and reports whether it was taken before ctx has ended.
func (t *turn) take(ctx context.Context) bool {
	for {
		freed := t.tryTake()
		if freed == nil {
			return true
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return false
		}
	}
}

// tryTake takes the turn, or returns a channel that is closed when it may be tried again.
func (t *turn) tryTake() (freed chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.taken {
		t.taken = true
		return nil
	}
	if t.freed == nil {
		t.freed = make(chan struct{})
	}
	return t.freed
}

func (t *turn) free() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken = false
	if t.freed != nil {
		close(t.freed)
		t.freed = nil
	}
}
