package main

import "sync"

// history is what happened in a run, in the order in which the parent learned of
// it.
type history struct {
	mu     sync.Mutex
	events []event
	now    []string // what each worker does: the last event that says so
	ends   map[ending]int
}

func newHistory(workers int) *history {
	return &history{now: make([]string, workers), ends: map[ending]int{}}
}

func (h *history) add(e event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
	switch e.Kind {
	case evWait, evHold, evBack, evDone, evKill:
		h.now[e.Worker] = e.Kind
	}
}

// ended counts an attempt.
func (h *history) ended(e ending) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ends[e]++
}

// scene is a run at a glance, for the progress line.
type scene struct{ waiting, holding, succeeded, attempts, killed int }

func (h *history) scene() (s scene) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, kind := range h.now {
		switch kind {
		case evWait:
			s.waiting++
		case evHold:
			s.holding++
		}
	}
	for _, n := range h.ends {
		s.attempts += n
	}
	s.succeeded, s.killed = h.ends[succeeded], h.ends[killed]
	return s
}
