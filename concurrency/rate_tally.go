package concurrency

import (
	"sync"

	"github.com/etcdkit/etcdkit/observe"
)

// rateTally counts how the calls of Allow and Wait end, for the hooks: to call a hook for each token would cost more
// than the token.
type rateTally struct {
	mu    sync.Mutex
	ended map[rateEnd]int // since the last report
}

// rateEnd is how a call has ended.
type rateEnd struct {
	result observe.Result
	reason observe.Reason
}

// add counts a call that returns err. ended is the error of its ctx.
func (t *rateTally) add(err, ended error) {
	result, reason := endOfAsking(err, ended, false)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended == nil {
		t.ended = map[rateEnd]int{}
	}
	t.ended[rateEnd{result, reason}]++
}

// report reports what was counted since the last time.
func (t *rateTally) report(q *sessionQueue) {
	t.mu.Lock()
	ended := t.ended
	t.ended = nil
	t.mu.Unlock()
	for how, n := range ended {
		q.sess.Post(observe.RateCalls{Namespace: q.sess.Hooks().Namespace(), Name: q.name, Result: how.result, Reason: how.reason, Count: n})
	}
}
