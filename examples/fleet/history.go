package main

import (
	"fmt"
	"sync"

	"github.com/etcdkit/etcdkit/internal/hostclock"
)

// history is what happened in a run, in the order in which the parent learned of
// it.
type history struct {
	maxHold int64

	mu     sync.Mutex
	events []event
	now    []event // what each worker does: the last event that says so
	ends   map[ending]int
	astray []string // how attempts ended that should have ended otherwise
}

func newHistory(c config) *history {
	return &history{maxHold: int64(c.maxHold()), now: make([]event, c.workers), ends: map[ending]int{}}
}

func (h *history) add(e event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
	switch e.Kind {
	case evWait, evHold, evBack, evDone, evKill, evStop:
		h.now[e.Worker] = e
	}
}

// ended counts an attempt, and remembers it if that was not the plan.
func (h *history) ended(r *run, e ending) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ends[e]++
	if e != r.job.End {
		h.astray = append(h.astray, fmt.Sprintf("worker %d, execution %d, attempt %d: %s instead of %s: %s",
			r.row+1, r.job.Execution, r.job.Attempt, labels[e], labels[r.job.End], r.reason))
	}
}

// scene is a run at a glance, for the progress line.
type scene struct{ waiting, holding, succeeded, attempts, killed int }

func (h *history) scene() (s scene) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.now {
		switch {
		case e.Kind == evWait:
			s.waiting++
		case e.Kind == evHold && hostclock.Now()-e.At < h.maxHold: // after that it is stuck, without a permit
			s.holding++
		}
	}
	for _, n := range h.ends {
		s.attempts += n
	}
	s.succeeded, s.killed = h.ends[succeeded], h.ends[killed]
	return s
}
