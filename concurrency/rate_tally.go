package concurrency

import (
	"sync"
	"time"

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

// longWait is a wait for a token that is reported: a rate that is used up, and whose calls have no deadline, refuses
// none of them.
const longWait = 10 * time.Second

// add counts a call that returns err. ended is the error of its ctx, and long is set after a long wait.
func (t *rateTally) add(err, ended error, long bool) {
	result, reason := endOfAsking(err, ended, false)
	if long && err == nil {
		reason = observe.Waited
	}
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
