package hook

import (
	"context"
	"io"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/observe"
)

type key struct{}

// H1: the context of a call has the values of the one that the hooks return, each after the other, and
// the cancellation of the caller's.
func TestContextOfStart(t *testing.T) {
	t.Parallel()
	add := func(text string, from func(context.Context) context.Context) observe.Hooks {
		return observe.Hooks{Start: func(ctx context.Context, _ observe.Call) (context.Context, func(observe.Outcome)) {
			before, _ := ctx.Value(key{}).(string)
			return context.WithValue(from(ctx), key{}, before+text), nil
		}}
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	set := New([]observe.Hooks{
		add("a", func(ctx context.Context) context.Context { return ctx }),
		add("b", context.WithoutCancel),
		{Start: func(context.Context, observe.Call) (context.Context, func(observe.Outcome)) { return nil, nil }},
		add("c", func(context.Context) context.Context { return context.WithValue(over, key{}, "") }),
	}, "ns", zap.NewNop())
	caller, cancel := context.WithCancel(context.WithValue(context.Background(), key{}, "-"))
	ctx, span := set.Start(caller, observe.Call{Op: observe.Acquire})
	require.Equal(t, "ns", span.Call.Namespace)
	require.Equal(t, "-abc", ctx.Value(key{}))
	require.NoError(t, ctx.Err())
	require.Equal(t, caller, Outer(ctx))
	require.Equal(t, caller, Outer(caller))
	child, stop := context.WithCancel(ctx)
	defer stop()
	cancel()
	<-child.Done()
	require.ErrorIs(t, ctx.Err(), context.Canceled)
}

// H3: of several ends the first one counts, and the hooks end in the reverse order.
func TestEndsOnce(t *testing.T) {
	t.Parallel()
	var ends []string
	end := func(name string) observe.Hooks {
		return observe.Hooks{Start: func(context.Context, observe.Call) (context.Context, func(observe.Outcome)) {
			return nil, func(o observe.Outcome) { ends = append(ends, name+" "+string(o.Result)) }
		}}
	}
	_, span := New([]observe.Hooks{end("a"), {}, end("b")}, "", zap.NewNop()).Start(context.Background(), observe.Call{})
	span.End(observe.Outcome{Result: observe.Granted})
	span.End(observe.Outcome{Result: observe.Lost})
	require.Equal(t, []string{"b granted", "a granted"}, ends)
	var none *Set
	ctx, nothing := none.Start(context.Background(), observe.Call{})
	nothing.End(observe.Outcome{})
	none.Event(ctx, observe.SessionLost{})
	none.Post(nil, observe.SessionLost{})
	require.Zero(t, none.Panics())
	require.False(t, none.On() || none.Listens())
}

// Posted events come in their order. Of the renewals that wait, one is left, with the greatest age.
func TestPostsInOrder(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	var got []observe.Event
	set := New([]observe.Hooks{{Event: func(_ context.Context, e observe.Event) { <-gate; got = append(got, e) }}}, "", zap.NewNop())
	var wg sync.WaitGroup
	background := func(f func()) bool { wg.Go(f); return true }
	renewed := func(lease int64, age time.Duration) {
		set.Post(background, observe.LeaseRenewed{Lease: lease, Age: age})
	}
	set.Post(background, observe.SessionRecovered{Lease: 1})
	require.Eventually(t, func() bool { set.mu.Lock(); defer set.mu.Unlock(); return len(set.posts) == 0 }, 30*time.Second, time.Millisecond)
	renewed(1, 3)
	renewed(1, 9)
	set.Post(background, observe.SessionLost{Lease: 1})
	renewed(2, 5)
	renewed(1, 4)
	close(gate)
	wg.Wait()
	require.Equal(t, []observe.Event{
		observe.SessionRecovered{Lease: 1}, observe.SessionLost{Lease: 1}, observe.LeaseRenewed{Lease: 2, Age: 5}, observe.LeaseRenewed{Lease: 1, Age: 9},
	}, got)
	set.Post(func(func()) bool { return false }, observe.SessionLost{})
	require.Empty(t, set.posts, "after the session's end nothing is kept")
}

// Counts of calls that wait for a slow hook are added up, by name and result.
func TestPostsAreAddedUp(t *testing.T) {
	t.Parallel()
	var posts []observe.Event
	for _, c := range []observe.RateCalls{
		{Name: "a", Result: observe.Granted, Count: 3}, {Name: "b", Result: observe.Granted, Count: 5},
		{Name: "a", Result: observe.Refused, Reason: observe.Exceeded, Count: 7}, {Name: "a", Result: observe.Granted, Count: 9},
	} {
		posts = post(posts, c)
	}
	require.Equal(t, []observe.Event{
		observe.RateCalls{Name: "b", Result: observe.Granted, Count: 5}, observe.RateCalls{Name: "a", Result: observe.Refused, Reason: observe.Exceeded, Count: 7},
		observe.RateCalls{Name: "a", Result: observe.Granted, Count: 12},
	}, posts)
}

// A182 in internal/proof/tested-failures.md: with the session, the outage policies of its middlewares end.
func TestPoliciesEndWithTheSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got []observe.Event
		set := New([]observe.Hooks{{Event: func(_ context.Context, e observe.Event) { got = append(got, e) }}}, "ns", zap.NewNop())
		policy := func(name string, active bool) observe.OutagePolicy {
			e := observe.OutagePolicy{Kind: observe.Limiter, Name: name, Policy: "open", Active: active}
			if active {
				e.Err = io.EOF
			}
			return e
		}
		for _, e := range []observe.Event{policy("a", true), policy("a", true), policy("b", true), policy("a", false), observe.SessionClosed{}, policy("b", false), policy("c", true)} {
			set.Post(func(deliver func()) bool { go deliver(); return true }, e)
			time.Sleep(time.Second)
			synctest.Wait()
		}
		lasted := func(name string, d time.Duration) observe.OutagePolicy {
			e := policy(name, false)
			e.Lasted = d
			return e
		}
		require.Equal(t, []observe.Event{
			policy("a", true), policy("a", true), policy("b", true), policy("a", false), lasted("a", 3*time.Second), lasted("b", 2*time.Second), observe.SessionClosed{},
		}, got)
	})
}

// A panic of a hook is an event for all hooks. A panic at that event is counted, and is no further event.
func TestPanicsAreReported(t *testing.T) {
	t.Parallel()
	var got []observe.Event
	set := New([]observe.Hooks{
		{Event: func(context.Context, observe.Event) { panic("always") }},
		{Event: func(_ context.Context, e observe.Event) { got = append(got, e) }},
	}, "ns", zap.NewNop())
	set.Event(context.Background(), observe.SessionLost{})
	require.Equal(t, []observe.Event{observe.HookPanicked{Namespace: "ns", Hook: "Event", Value: "always"}, observe.SessionLost{}}, got)
	require.EqualValues(t, 2, set.Panics())
}

// A481 in internal/proof/tested-failures.md: a hook that exits its goroutine, as FailNow of a test does, is reported like
// one that panics. The other hooks get the event, all get the later ones, and each Start is ended.
func TestHookExitsItsGoroutine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var first, second []observe.Event
		var ends []observe.Outcome
		set := New([]observe.Hooks{
			{
				Event: func(_ context.Context, e observe.Event) { first = append(first, e); runtime.Goexit() },
				Start: func(ctx context.Context, _ observe.Call) (context.Context, func(observe.Outcome)) {
					return ctx, func(o observe.Outcome) { ends = append(ends, o) }
				},
			},
			{
				Event: func(_ context.Context, e observe.Event) { second = append(second, e) },
				Start: func(ctx context.Context, c observe.Call) (context.Context, func(observe.Outcome)) {
					if c.Op == observe.Acquire {
						runtime.Goexit()
					}
					return ctx, func(o observe.Outcome) { ends = append(ends, o); runtime.Goexit() }
				},
			},
		}, "ns", zap.NewNop())
		exited := observe.HookPanicked{Namespace: "ns", Hook: "Event", Value: errExited}
		want := []observe.Event{exited, observe.SessionLost{Lease: 1}, exited, observe.SessionRecovered{Lease: 2}, exited, observe.SessionLost{Lease: 2}}
		background := func(deliver func()) bool { go deliver(); return true }
		set.Post(background, observe.SessionLost{Lease: 1})
		set.Post(background, observe.SessionRecovered{Lease: 2})
		synctest.Wait()
		set.Post(background, observe.SessionLost{Lease: 2})
		synctest.Wait()
		require.ElementsMatch(t, want, first)
		require.Equal(t, want, second)
		require.EqualValues(t, 6, set.Panics())

		go set.Start(t.Context(), observe.Call{Op: observe.Acquire})
		synctest.Wait()
		require.Len(t, ends, 1, "the first hook's Start is ended")
		require.Equal(t, observe.Panic, ends[0].Reason)
		go func() {
			_, span := set.Start(t.Context(), observe.Call{Op: observe.Release})
			span.End(observe.Outcome{Result: observe.Released})
		}()
		synctest.Wait()
		require.Len(t, ends, 3, "each has ended once")
		require.Equal(t, observe.Released, ends[2].Result)
	})
}
