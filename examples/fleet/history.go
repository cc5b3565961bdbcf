package main

import (
	"fmt"
	"sync"

	"github.com/etcdkit/etcdkit/internal/hostclock"
)

// history has the events of a run, in the order in which the parent received them.
type history struct {
	maxHold int64

	mu        sync.Mutex
	events    []event
	now       []event // by worker: the last event that changed what it does
	ends      map[ending]int
	unplanned []string // attempts with another end than planned
}

func newHistory(c config) *history {
	return &history{maxHold: int64(c.maxHold()), now: make([]event, c.workers), ends: map[ending]int{}}
}

func (h *history) add(e event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
	switch e.Kind {
	case evWait, evHold, evReleasing, evDone, evKill, evStop:
		h.now[e.Worker] = e
	}
}

// ended counts an attempt, and lists it if its end was not the planned one.
func (h *history) ended(r *run, e ending) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ends[e]++
	if e != r.job.End {
		h.unplanned = append(h.unplanned, fmt.Sprintf("worker %d, execution %d, attempt %d: %s instead of %s: %s",
			r.row+1, r.job.Execution, r.job.Attempt, labels[e], labels[r.job.End], r.reason))
	}
}

// progress has the numbers of the progress line.
type progress struct{ waiting, holding, succeeded, attempts, killed int }

func (h *history) progress() (s progress) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.now {
		switch {
		case e.Kind == evWait:
			s.waiting++
		case e.Kind == evHold && hostclock.Now()-e.At < h.maxHold: // after maxHold it is stuck, without a permit
			s.holding++
		}
	}
	for _, n := range h.ends {
		s.attempts += n
	}
	s.succeeded, s.killed = h.ends[succeeded], h.ends[killed]
	return s
}
