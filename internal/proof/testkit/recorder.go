package testkit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/observe"
)

// Recorder has hooks that record what they receive: each call that ends, as "acquire: refused (full)",
// and the kind of each event, as "PermitLost". It is safe for concurrent use.
type Recorder struct {
	mu    sync.Mutex
	said  []Said
	open  map[int]observe.Call
	ended map[int]int // how often
	calls int
}

// Said is one call that has ended, or one event.
type Said struct {
	Text    string
	Call    observe.Call
	Outcome observe.Outcome
	Event   observe.Event // nil for a call
	At      time.Time
}

type recorded struct{}

// CallOf returns the number of the innermost call whose context ctx is, or 0. Numbers count from 1, in
// the order in which calls began.
func CallOf(ctx context.Context) int {
	n, _ := ctx.Value(recorded{}).(int)
	return n
}

// Hooks returns the hooks.
func (r *Recorder) Hooks() []observe.Hooks {
	return []observe.Hooks{{Start: r.start, Event: r.event}}
}

func (r *Recorder) start(ctx context.Context, c observe.Call) (context.Context, func(observe.Outcome)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	n := r.calls
	if r.open == nil {
		r.open, r.ended = map[int]observe.Call{}, map[int]int{}
	}
	r.open[n] = c
	return context.WithValue(ctx, recorded{}, n), func(o observe.Outcome) {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.open, n)
		r.ended[n]++
		text := fmt.Sprintf("%s: %s", c.Op, o.Result)
		if o.Reason != "" {
			text += fmt.Sprintf(" (%s)", o.Reason)
		}
		r.said = append(r.said, Said{Text: text, Call: c, Outcome: o, At: time.Now()})
	}
}

func (r *Recorder) event(_ context.Context, e observe.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := strings.TrimPrefix(fmt.Sprintf("%T", e), "observe.")
	said := Said{Text: text, Event: e, At: time.Now()}
	switch e := e.(type) {
	case observe.Waiting:
		said.Call = e.Call
	case observe.PermitLost:
		said.Call = e.Call
	case observe.Overrun:
		said.Call = e.Call
	case observe.Unclaimed:
		said.Call = e.Call
	}
	r.said = append(r.said, said)
}

// Said returns what was recorded about calls of that name, of all names if it is "".
func (r *Recorder) Said(name string) []Said {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.said), func(s Said) bool { return name != "" && s.Call.Name != name })
}

// Texts returns the texts of what was recorded about calls of that name, without reports of waiting and
// renewals.
func (r *Recorder) Texts(name string) []string {
	var texts []string
	for _, s := range r.Said(name) {
		if s.Text != "Waiting" && s.Text != "LeaseRenewed" {
			texts = append(texts, s.Text)
		}
	}
	return texts
}

// Await waits until exactly these texts were recorded about calls of that name, in any order.
func (r *Recorder) Await(t testing.TB, name string, want ...string) {
	t.Helper()
	want = slices.Sorted(slices.Values(want)) // the caller may have it for several tests
	for end := time.Now().Add(Soon); ; time.Sleep(5 * time.Millisecond) {
		texts := r.Texts(name)
		slices.Sort(texts)
		if slices.Equal(texts, want) {
			return
		}
		if time.Now().After(end) {
			require.Equal(t, want, texts)
		}
	}
}

// Settled asserts that each call that has begun has ended, once.
func (r *Recorder) Settled(t testing.TB) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Empty(t, r.open, "calls that have not ended")
	for n, times := range r.ended {
		require.Equal(t, 1, times, "ends of call %d", n)
	}
}
