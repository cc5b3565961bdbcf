package idempotency

import (
	"context"
	"fmt"
	"sync"
)

// CallKey returns an idempotency key for a call to another service, for use by a client's transport
// or interceptor. Like ChildKey it derives the key from the attempt whose context ctx is or is
// derived from; ok is false if there is none. text describes the call: its target, its method and its
// content. Describe what the call says, and not its bytes if an encoder writes them in another way each
// time: idemhttp.Transport and idemgrpc's client interceptor do.
//
// Calls of two attempts at the request have the same key if they have the same text, are in the same
// Step or in none, and have the same position among such calls. So a call that every attempt makes
// keeps its key, whatever other calls an attempt makes; two equal calls of one attempt have two keys;
// and a call whose content differs between attempts has a different key in each. The order of calls
// matters only among equal ones.
//
// Call retry if the call got no answer, or an answer that a retry may change: the next equal call
// then has the same key. A Step that runs again starts with no calls. CallKey and retry are safe for
// concurrent use.
func CallKey(ctx context.Context, text string) (key string, retry func(), ok bool) {
	a, ok := FromContext(ctx)
	if !ok {
		return "", nil, false
	}
	c, within := ctx.Value(callsKey{}).(*calls)
	if !within || c.of != a { // a is within a step of another attempt
		c = &a.calls
	}
	n := c.take(text)
	return a.ChildKey(fmt.Sprintf("call %d\n%d %s\n%s", n, len(c.step), c.step, text)), sync.OnceFunc(func() { c.free(text, n) }), true
}

// calls are the calls of an attempt, or of one run of one of its steps.
type calls struct {
	of    *Attempt // of a step
	step  string
	mu    sync.Mutex
	taken map[string][]bool // by text: the positions of equal calls
}

type callsKey struct{}

// take returns the first free position.
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
