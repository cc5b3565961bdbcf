package ratelimit

import (
	"sync"

	"github.com/etcdkit/etcdkit/observe"
)

// tally counts how calls end, for the hooks: to call a hook for each token would cost more than the token.
type tally struct {
	mu    sync.Mutex
	ended map[callEnd]int // since the last report
}

// callEnd is how a call has ended.
type callEnd struct {
	result observe.Result
	reason observe.Reason
}

// Ended counts a call that has ended so.
func (s *Shares) Ended(result observe.Result, reason observe.Reason) {
	t := &s.tally
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended == nil {
		t.ended = map[callEnd]int{}
	}
	t.ended[callEnd{result, reason}]++
}

// report reports what was counted since the last time.
func (s *Shares) report() {
	t := &s.tally
	t.mu.Lock()
	ended := t.ended
	t.ended = nil
	t.mu.Unlock()
	for how, n := range ended {
		s.Session.Post(observe.RateCalls{Namespace: s.Session.Hooks().Namespace(), Name: s.Queue.Name, Result: how.result, Reason: how.reason, Count: n})
	}
}
