package idempotency

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/etcdkit/etcdkit/idempotency/internal/retries"
)

// CallKey returns an idempotency key for a call to another service, for use by a client's transport
// or interceptor. Like ChildKey it derives the key from the attempt whose context ctx is or is
// derived from; the key is empty if there is none. text describes the call: its target, its method and its
// content. Describe what the call says, and not its bytes if an encoder writes them in another way each
// time: idemhttp.Transport and idemgrpc's client interceptor do.
//
// Calls of two attempts at the request have the same key if they have the same text, are in the same
// Step or in none, and have the same position among such calls. So a call that every attempt makes
// keeps its key, whatever other calls an attempt makes; two equal calls of one attempt have two keys;
// and a call whose content differs between attempts has a different key in each. The order of calls
// matters only among equal ones.
//
// apart is what else distinguishes calls with that text, by name, such as the header with the account. It is
// no part of the key, since a name that differs in each attempt would make another key in each. A call that
// differs in it from an earlier one of the attempt with the same text returns ErrInvalid: in another attempt
// the two can come in another order, and each would get the key, and so perhaps the response, of the other.
// Such calls need a ChildKey each. nil is for calls that are the same for the service if their texts are.
//
// Call retry if the call got no answer, or an answer that a retry may change: the next equal call
// then has the same key. A Step that runs again starts with no calls. CallKey and retry are safe for
// concurrent use.
func CallKey(ctx context.Context, text string, apart map[string]string) (key string, retry func(), err error) {
	a, ok := FromContext(ctx)
	if !ok {
		return "", nil, nil
	}
	c, within := ctx.Value(callsKey{}).(*calls)
	if !within || c.of != a { // a is within a step of another attempt
		c = &a.calls
	}
	n, differ := c.take(text, apart, retries.Of(ctx))
	if len(differ) > 0 {
		return "", nil, invalid("the attempt has made a call that differs from this one only in %s, and another attempt may make them in another order: give each a key of its own (Attempt.ChildKey)", strings.Join(differ, ", "))
	}
	return a.ChildKey(fmt.Sprintf("call %d\n%d %s\n%s", n, len(c.step), c.step, text)), sync.OnceFunc(func() { c.free(text, n) }), nil
}

// calls are the calls of an attempt, or of one run of one of its steps.
type calls struct {
	of    *Attempt // of a step
	step  string
	mu    sync.Mutex
	alike map[string]*alike // by text
}

// alike are calls with one text.
type alike struct {
	apart map[string][sha256.Size]byte // hashes, since it can be secret
	taken []position
	of    map[any]int // the last positions of calls whose context has a mark: see package retries
}

// position is a place among equal calls.
type position struct {
	calls int // that are not over, or have an answer
	mark  any // of their context; nil without one
}

type callsKey struct{}

// take returns the position of the calls with that mark, or the first free one, or the names in which a call differs from
// those with its text.
func (c *calls) take(text string, apart map[string]string, mark any) (n int, differ []string) {
	hashes := make(map[string][sha256.Size]byte, len(apart))
	for name, value := range apart {
		hashes[name] = sha256.Sum256([]byte(value))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.alike == nil {
		c.alike = map[string]*alike{}
	}
	all, ok := c.alike[text]
	if !ok {
		all = &alike{apart: hashes, of: map[any]int{}}
		c.alike[text] = all
	}
	if differ := differences(all.apart, hashes); len(differ) > 0 {
		return 0, differ
	}
	return all.take(mark), nil
}

// take returns the last position of the calls with that mark, unless another call has taken it since, or the first free one.
func (all *alike) take(mark any) int {
	n, marked := all.of[mark]
	if at := all.taken; !marked || at[n].calls > 0 && at[n].mark != mark {
		n = slices.IndexFunc(at, func(p position) bool { return p.calls == 0 })
	}
	if n < 0 {
		n, all.taken = len(all.taken), append(all.taken, position{})
	}
	all.taken[n].calls++
	all.taken[n].mark = mark
	if mark != nil {
		all.of[mark] = n
	}
	return n
}

// differences returns the names whose values differ, in order.
func differences[V comparable](a, b map[string]V) (names []string) {
	for name, value := range a {
		if other, ok := b[name]; !ok || other != value {
			names = append(names, name)
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (c *calls) free(text string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alike[text].taken[n].calls--
}
