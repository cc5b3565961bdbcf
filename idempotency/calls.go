package idempotency

import (
	"context"
	"fmt"
	"sync"
)

// CallKey returns an idempotency key for a call to another service, for a client's transport or
// interceptor. It is made from the attempt to whose context ctx belongs, as ChildKey makes one; ok
// is false if ctx belongs to none. The text describes the call: whom, what and with which content.
//
// The key is the same in all attempts at the request, for the call of the same text, within the same
// Step, and of the same place among those. So a call that comes in all attempts has its key, however
// the calls around it change; two equal calls of one attempt have two; and one whose content
// changes from attempt to attempt has a new one each time. Only the places of equal calls rest on
// their order.
//
// The caller calls retry if the call got no answer, or one that another try may change: then the
// next equal call is taken for that try, and has the same key. A Step that runs again begins anew.
// It is safe for concurrent use, and so is retry.
func CallKey(ctx context.Context, text string) (key string, retry func(), ok bool) {
	a, ok := FromContext(ctx)
	if !ok {
		return "", nil, false
	}
	c, within := ctx.Value(callsKey{}).(*calls)
	if !within || c.of != a { // an attempt within a step of another
		c = &a.calls
	}
	n := c.take(text)
	return a.ChildKey(fmt.Sprintf("call %d\n%d %s\n%s", n, len(c.step), c.step, text)), sync.OnceFunc(func() { c.free(text, n) }), true
}

// calls are those of an attempt, or of one run of a step of it.
type calls struct {
	of    *Attempt // of a step
	step  string
	mu    sync.Mutex
	taken map[string][]bool // by text: the places of equal calls
}

type callsKey struct{}

// take returns the first place that is free.
func (c *calls) take(text string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.taken == nil {
		c.taken = map[string][]bool{}
	}
	all := c.taken[text]
	for n, taken := range all {
		if !taken {
			all[n] = true
			return n
		}
	}
	c.taken[text] = append(all, true)
	return len(all)
}

func (c *calls) free(text string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken[text][n] = false
}
