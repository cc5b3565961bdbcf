package idempotency

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
)

// lateCalls are the calls of work that continues when its attempt has a recorded outcome. Their keys need not be those of
// another attempt. What is kept is bounded by the calls that failed and were not made again.
type lateCalls struct {
	again  map[callID][]string // keys of calls to make again
	marked map[markedCall]string
}

// callID identifies calls that are equal, also in what is apart.
type callID [sha256.Size]byte

// markedCall is a call of a context that has had a key before the outcome was recorded.
type markedCall struct {
	mark any
	of   callID
}

func (made *outgoing) id() (id callID) {
	h := sha256.New()
	fmt.Fprintf(h, "%d %s", len(made.text), made.text)
	for _, name := range slices.Sorted(maps.Keys(made.apart)) {
		fmt.Fprintf(h, "\n%d %s %x", len(name), name, made.apart[name])
	}
	return callID(h.Sum(nil))
}

// leave returns what is kept of the calls of an attempt: the keys of those that may be made again. c.mu is held.
func (c *calls) leave(a *Attempt) *lateCalls {
	late := &lateCalls{map[callID][]string{}, map[markedCall]string{}}
	for text, all := range c.alike {
		id := (&outgoing{text: text, apart: all.apart}).id()
		for n, p := range all.taken {
			if p.calls == 0 && p.mark == nil {
				late.again[id] = append(late.again[id], c.keyOf(a, text, n))
			}
		}
		for mark, n := range all.of {
			if mark != nil && all.taken[n].mark == mark {
				late.marked[markedCall{mark, id}] = c.keyOf(a, text, n)
			}
		}
	}
	return late
}

// take returns the key of a call: that of the call that it repeats, or a new one.
func (l *lateCalls) take(made outgoing) string {
	id := made.id()
	if made.mark != nil {
		if key, ok := l.marked[markedCall{made.mark, id}]; ok {
			return key
		}
		if m, ok := made.mark.(interface{ Key() string }); ok {
			return m.Key()
		}
		return rand.Text()
	}
	keys := l.again[id]
	if len(keys) == 0 {
		return rand.Text()
	}
	if len(keys) == 1 {
		delete(l.again, id)
	} else {
		l.again[id] = keys[1:]
	}
	return keys[0]
}

// failed notes that a call may be made again. One whose context has a mark finds its key by that.
func (l *lateCalls) failed(made outgoing, key string) {
	if made.mark == nil {
		id := made.id()
		l.again[id] = append(l.again[id], key)
	}
}
