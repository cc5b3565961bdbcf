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
	hooks     []observe.Hooks
	namespace string
	log       *zap.Logger
	panics    atomic.Int64

	mu    sync.Mutex
	posts []observe.Event // not delivered yet
	busy  bool            // a goroutine delivers them
	away  policies
}

// New returns the set of those hooks, or nil if there are none.
func New(hooks []observe.Hooks, namespace string, log *zap.Logger) *Set {
	if len(hooks) == 0 {
		return nil
	}
	return &Set{hooks: slices.Clone(hooks), namespace: namespace, log: log}
}

// On reports whether there are hooks: nothing needs to be made for them otherwise.
func (s *Set) On() bool { return s != nil }

// Listens reports whether a hook receives events.
func (s *Set) Listens() bool {
	return s != nil && slices.ContainsFunc(s.hooks, func(h observe.Hooks) bool { return h.Event != nil })
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
	ends []func(observe.Outcome)
	over atomic.Bool
}

// Start begins a call. It returns the ctx under which the call continues: with the values that the
// hooks have given it, and the cancellation of ctx. Without hooks it returns ctx and nil.
func (s *Set) Start(ctx context.Context, call observe.Call) (context.Context, *Span) {
	if s == nil {
		return ctx, nil
	}
	call.Namespace = s.namespace
	span, values := &Span{set: s, Call: call}, ctx
	for _, h := range s.hooks {
		if h.Start == nil {
			continue
		}
		s.contain("Start", func() {
			next, end := h.Start(values, call)
			if end != nil {
				span.ends = append(span.ends, end)
			}
			if next != nil {
				values = next
			}
		})
	}
	if values != ctx {
		ctx = With(ctx, values)
	}
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
	for _, end := range slices.Backward(s.ends) {
		s.set.contain("the end of Start", func() { end(o) })
	}
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
	for _, h := range s.hooks {
		if h.Event != nil {
			s.contain("Event", func() { h.Event(ctx, e) })
		}
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

// deliver delivers what was posted, until nothing is left.
func (s *Set) deliver() {
	for {
		s.mu.Lock()
		if len(s.posts) == 0 {
			s.busy = false
			s.mu.Unlock()
			return
		}
		e := s.posts[0]
		s.posts = s.posts[1:]
		s.mu.Unlock()
		s.Event(context.Background(), e)
	}
}

// contain calls a hook. A panic ends here.
func (s *Set) contain(which string, call func()) {
	defer func() {
		if v := recover(); v != nil {
			s.panics.Add(1)
			s.log.Warn("a hook has panicked; its report is lost, and the call continues: mend the hook (SessionOptions.Hooks)",
				zap.String("hook", which), zap.String("panic", fmt.Sprint(v)), zap.Stack("stack"))
			s.panicked(observe.HookPanicked{Namespace: s.namespace, Hook: which, Value: v})
		}
	}()
	call()
}

// panicked reports a panic to the hooks. Those of this report are counted alone: a hook that always panics would
// report itself without end.
func (s *Set) panicked(e observe.HookPanicked) {
	for _, h := range s.hooks {
		if h.Event != nil {
			func() {
				defer func() {
					if recover() != nil {
						s.panics.Add(1)
					}
				}()
				h.Event(context.Background(), e)
			}()
		}
	}
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
