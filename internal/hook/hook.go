// Package hook calls the hooks of a session: without a lock of etcdkit's, each call of Start ended
// once, and each panic contained and counted.
package hook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/observe"
)

// Set is the hooks of one session. It is safe for concurrent use. A nil Set has none.
type Set struct {
	hooks     []numbered
	namespace string
	log       *zap.Logger
	panics    atomic.Int64
	logged    Panics

	mu    sync.Mutex
	posts []observe.Event // not delivered yet
	busy  bool            // a goroutine delivers them
	away  policies
}

// numbered is hooks with their place in the set.
type numbered struct {
	observe.Hooks
	at int
}

// New returns the set of those hooks, or nil if there are none.
func New(hooks []observe.Hooks, namespace string, log *zap.Logger) *Set {
	if len(hooks) == 0 {
		return nil
	}
	s := &Set{namespace: namespace, log: log}
	for at, h := range hooks {
		s.hooks = append(s.hooks, numbered{h, at})
	}
	return s
}

// On reports whether there are hooks: nothing needs to be made for them otherwise.
func (s *Set) On() bool { return s != nil }

// Listens reports whether a hook receives events.
func (s *Set) Listens() bool {
	return s != nil && slices.ContainsFunc(s.hooks, func(h numbered) bool { return h.Event != nil })
}

// Namespace returns the namespace of the session; "" of a nil Set.
func (s *Set) Namespace() string {
	if s == nil {
		return ""
	}
	return s.namespace
}

// Panics returns how many calls of hooks have panicked.
func (s *Set) Panics() int64 {
	if s == nil {
		return 0
	}
	return s.panics.Load()
}

// Span is a call that has begun.
type Span struct {
	set  *Set
	Call observe.Call
	ends []ending
	over atomic.Bool
}

// ending is what the Start of the hooks at a place has returned.
type ending struct {
	at  int
	end func(observe.Outcome)
}

// Start begins a call. It returns the ctx under which the call continues: with the values that the
// hooks have given it, and the cancellation of ctx. Without hooks it returns ctx and nil.
func (s *Set) Start(ctx context.Context, call observe.Call) (context.Context, *Span) {
	if s == nil {
		return ctx, nil
	}
	call.Namespace = s.namespace
	span, values, started := &Span{set: s, Call: call}, ctx, false
	defer func() {
		if !started { // a hook has exited the goroutine: the caller does not get the span
			span.Unwind(time.Now())
		}
	}()
	for _, h := range s.hooks {
		if h.Start == nil {
			continue
		}
		s.contain(h.at, "Start", func() {
			next, end := h.Start(values, call)
			if end != nil {
				span.ends = append(span.ends, ending{h.at, end})
			}
			if next != nil {
				values = next
			}
		})
	}
	if values != ctx {
		ctx = With(ctx, values)
	}
	started = true
	return ctx, span
}

// Outer returns the ctx that was given to Start, of the ctx that Start has returned.
func Outer(ctx context.Context) context.Context {
	if v, ok := ctx.(valued); ok {
		return v.Context
	}
	return ctx
}

// End ends the call, in the reverse order of the hooks. Further calls of End do nothing, nor does End of
// nil.
func (s *Span) End(o observe.Outcome) {
	if s == nil || s.over.Swap(true) {
		return
	}
	slices.Reverse(s.ends)
	Each(s.ends, func(of ending) { s.set.contain(of.at, "the end of Start", func() { of.end(o) }) })
}

// Unwind is deferred by a call that runs code of the caller's: it ends a call whose End was not reached,
// because that code has panicked or has exited its goroutine. begun is when the call began.
func (s *Span) Unwind(begun time.Time) {
	if s != nil && !s.over.Load() {
		s.End(observe.Outcome{Result: observe.Error, Reason: observe.Panic, Err: errUnwound, Took: time.Since(begun)})
	}
}

var errUnwound = errors.New("the call has panicked, or its goroutine has exited")

// Event reports an event that concerns the call of ctx.
func (s *Set) Event(ctx context.Context, e observe.Event) {
	if s == nil {
		return
	}
	ctx = context.WithoutCancel(ctx)
	Each(s.hooks, func(h numbered) {
		if h.Event != nil {
			s.contain(h.at, "Event", func() { h.Event(ctx, e) })
		}
	})
}

// Each makes a call for each element of a slice, also if a call exits the goroutine.
func Each[T any](of []T, call func(T)) {
	next := 0
	defer func() {
		if next < len(of) {
			Each(of[next:], call)
		}
	}()
	for next < len(of) {
		next++
		call(of[next-1])
	}
}

// Post reports an event of the session in the background, after those that were posted before. background
// starts a goroutine, or returns false if none is started any more; then the event is dropped. Before SessionClosed it
// reports the end of the outage policies that decide: the session has no more requests. The caller may hold locks.
func (s *Set) Post(background func(func()) bool, e observe.Event) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.away.with(e, time.Now()) {
		s.posts = post(s.posts, e)
	}
	if s.busy {
		return
	}
	if s.busy = background(s.deliver); !s.busy {
		s.posts = nil
	}
}

// post adds an event to those that are not delivered yet. Of the renewals among them only the latest
// one stays, with the greatest age, and counts of calls are added up: they come for as long as a hook is slow.
func post(posts []observe.Event, e observe.Event) []observe.Event {
	for i, p := range posts {
		if sum, ok := merged(p, e); ok {
			return append(slices.Delete(posts, i, i+1), sum)
		}
	}
	return append(posts, e)
}

// merged returns one event for two, if there is one that says what both say.
func merged(before, next observe.Event) (observe.Event, bool) {
	switch next := next.(type) {
	case observe.LeaseRenewed:
		if before, ok := before.(observe.LeaseRenewed); ok && before.Lease == next.Lease {
			next.Age = max(next.Age, before.Age)
			return next, true
		}
	case observe.RateCalls:
		if before, ok := before.(observe.RateCalls); ok {
			n := before.Count
			if before.Count = next.Count; before == next {
				next.Count += n
				return next, true
			}
		}
	}
	return nil, false
}

// deliver delivers what was posted, until nothing is left. If a hook exits the goroutine, the rest is delivered before that ends.
func (s *Set) deliver() {
	over := false
	defer func() {
		if !over {
			s.deliver()
		}
	}()
	for e, ok := s.posted(); ok; e, ok = s.posted() {
		s.Event(context.Background(), e)
	}
	over = true
}

// posted takes the next event that was posted. If there is none, the next Post starts a goroutine.
func (s *Set) posted() (e observe.Event, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy = len(s.posts) > 0; !s.busy {
		return nil, false
	}
	e, s.posts = s.posts[0], s.posts[1:]
	return e, true
}

var errExited = errors.New("the hook has exited its goroutine by runtime.Goexit, as FailNow of a test does")

// contain calls a hook. A panic ends here. An exit of the goroutine is reported as one, and continues.
func (s *Set) contain(at int, which string, call func()) {
	returned := false
	defer func() {
		v := recover()
		if v == nil && !returned {
			v = errExited
		}
		if v != nil {
			s.panics.Add(1)
			s.logged.Log(s.log, "a hook has panicked or exited; its report is lost: correct the hook (SessionOptions.Hooks)",
				fmt.Sprint(which, " ", at), zap.String("hook", which), v)
			s.panicked(observe.HookPanicked{Namespace: s.namespace, Hook: which, Value: v})
		}
	}()
	call()
	returned = true
}

// panicked reports a panic to the hooks. Those of this report are counted alone: a hook that always panics would
// report itself without end.
func (s *Set) panicked(e observe.HookPanicked) {
	Each(s.hooks, func(h numbered) {
		if h.Event == nil {
			return
		}
		returned := false
		defer func() {
			if recover() != nil || !returned {
				s.panics.Add(1)
			}
		}()
		h.Event(context.Background(), e)
		returned = true
	})
}

// With returns ctx with the values of another context, and with those of its own that the other one does not have.
func With(ctx, values context.Context) context.Context {
	return valued{ctx, context.WithoutCancel(values)}
}

// valued is a context with the values of another one.
type valued struct {
	context.Context
	values context.Context
}

// Value also finds what package context keeps in ctx: a child ends together with ctx, and with its cause.
func (v valued) Value(key any) any {
	if value := v.values.Value(key); value != nil {
		return value
	}
	return v.Context.Value(key)
}
