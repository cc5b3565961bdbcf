package chaos

import (
	"fmt"
	"slices"
	"sync"

	"github.com/etcdkit/etcdkit/observe"
)

// brackets checks what hooks see: each call that begins ends, once. Whatever the faults, that is so when
// all sessions are closed.
type brackets struct {
	mu    sync.Mutex
	begun int
	open  map[int]observe.Call
	twice []string
}

// start records that a call has begun, and returns what records its end.
func (b *brackets) start(c observe.Call) (end func(observe.Outcome)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == nil {
		b.open = map[int]observe.Call{}
	}
	b.begun++
	n := b.begun
	b.open[n] = c
	return func(o observe.Outcome) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if _, ok := b.open[n]; !ok {
			b.twice = append(b.twice, fmt.Sprintf("hooks saw two ends of a call: %s of %s %q, the second one %s", c.Op, c.Kind, c.Name, o.Result))
		}
		delete(b.open, n)
	}
}

// wrong returns what is wrong when all sessions are closed.
func (b *brackets) wrong() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := slices.Clone(b.twice)
	for _, c := range b.open {
		found = append(found, fmt.Sprintf("hooks saw no end of a call: %s of %s %q", c.Op, c.Kind, c.Name))
	}
	return found
}
