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
// derived from, or a request that runs without a claim under FailOpen; the key is empty if there is none. text describes the call: its target, its method and its
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
// Once the attempt has a recorded outcome, no other attempt makes its calls, and the order of later calls does not matter:
// a call of work that continues then has a random key, calls that differ in apart have two, and one that is made again after
// retry keeps the key that it had.
//
// Call retry if the call got no answer, or an answer that a retry may change: the next equal call
// then has the same key. A Step that runs again starts with no calls. CallKey and retry are safe for
// concurrent use.
func CallKey(ctx context.Context, text string, apart map[string]string) (key string, retry func(), err error) {
	a := attemptOf(ctx)
	if a == nil {
		return "", nil, nil
	}
	c, within := ctx.Value(callsKey{}).(*calls)
	if !within || c.of != a { // a is within a step of another attempt
		c = &a.calls
	}
	made := outgoing{text, hashed(apart), retries.Of(ctx)}
	key, n, differ := c.next(a, made)
	if len(differ) > 0 {
		return "", nil, invalid("the attempt has made a call that differs from this one only in %s, and another attempt may make them in another order: give each a key of its own (Attempt.ChildKey)", strings.Join(differ, ", "))
	}
	return key, sync.OnceFunc(func() { c.again(made, n, key) }), nil
}

// outgoing is a call to another service.
type outgoing struct {
	text  string
	apart map[string][sha256.Size]byte // hashes, since it can be secret
	mark  any                          // of its context; nil without one: see package retries
}

func hashed(apart map[string]string) map[string][sha256.Size]byte {
	hashes := make(map[string][sha256.Size]byte, len(apart))
	for name, value := range apart {
		hashes[name] = sha256.Sum256([]byte(value))
	}
	return hashes
}

// calls are the calls of an attempt, or of one run of one of its steps.
type calls struct {
	of    *Attempt // of a step
	step  string
	mu    sync.Mutex
	alike map[string]*alike // by text
	late  *lateCalls        // in place of alike once the attempt has a recorded outcome
}

// next returns the key of a call and its position, or the names in which it differs from those with its text.
func (c *calls) next(a *Attempt, made outgoing) (key string, n int, differ []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.late == nil && a.settling.isRecorded() {
		c.late, c.alike = c.leave(a), nil
	}
	if c.late != nil {
		return c.late.take(made), 0, nil
	}
	if n, differ = c.take(made); len(differ) > 0 {
		return "", 0, differ
	}
	return c.keyOf(a, made.text, n), n, nil
}

// keyOf returns the key of the call with that text and position.
func (c *calls) keyOf(a *Attempt, text string, n int) string {
	return a.ChildKey(fmt.Sprintf("call %d\n%d %s\n%s", n, len(c.step), c.step, text))
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

// take returns the position of the calls with the mark, or the first free one, or the names in which the call differs from
// those with its text. c.mu is held.
func (c *calls) take(made outgoing) (n int, differ []string) {
	if c.alike == nil {
		c.alike = map[string]*alike{}
	}
	all, ok := c.alike[made.text]
	if !ok {
		all = &alike{apart: made.apart, of: map[any]int{}}
		c.alike[made.text] = all
	}
	if differ := differences(all.apart, made.apart); len(differ) > 0 {
		return 0, differ
	}
	return all.take(made.mark), nil
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

// again notes that a call got no final answer, and may be made again.
func (c *calls) again(made outgoing, n int, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.late != nil {
		c.late.failed(made, key)
		return
	}
	c.alike[made.text].taken[n].calls--
}
