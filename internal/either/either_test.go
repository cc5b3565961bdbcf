package either_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/either"
)

var (
	errFirst = errors.New("first")
	errOther = errors.New("other")
	errGiven = errors.New("given")
)

type key struct{}

// ended reports which channels are closed.
func ended(ctx context.Context) bool {
	a, b, c := either.All(ctx)
	select {
	case <-a:
	case <-b:
	case <-c:
	default:
		return false
	}
	return true
}

// Whichever ends, and whether a goroutine waits before or not: Err, Done, All, Cause and derived contexts agree.
func TestEnds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		end         func(first, other context.CancelCauseFunc, c *either.Ctx)
		given       error
		cause, kind error
	}{
		"none":              {func(context.CancelCauseFunc, context.CancelCauseFunc, *either.Ctx) {}, nil, nil, nil},
		"first":             {func(first, _ context.CancelCauseFunc, _ *either.Ctx) { first(errFirst) }, errGiven, errFirst, context.Canceled},
		"other":             {func(_, other context.CancelCauseFunc, _ *either.Ctx) { other(errOther) }, nil, errOther, context.Canceled},
		"other, with cause": {func(_, other context.CancelCauseFunc, _ *either.Ctx) { other(errOther) }, errGiven, errGiven, context.Canceled},
		"released":          {func(_, _ context.CancelCauseFunc, c *either.Ctx) { c.Release() }, errGiven, context.Canceled, context.Canceled},
	} {
		for waiting, before := range map[string]bool{"waited for": true, "not waited for": false} {
			t.Run(name+", "+waiting, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					first, endFirst := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
					other, endOther := context.WithCancelCause(context.Background())
					defer endOther(nil)
					c := either.Of(first, other, tt.given)
					within := either.Of(c, context.Background(), nil)
					if before {
						require.NoError(t, c.Err())
						require.NoError(t, context.Cause(c))
						<-time.After(1)
						go func() { <-c.Done() }()
						synctest.Wait()
					}
					tt.end(endFirst, endOther, c)
					synctest.Wait()
					require.Equal(t, tt.kind, c.Err())
					require.Equal(t, tt.cause, context.Cause(c))
					require.Equal(t, "value", c.Value(key{}))
					require.Equal(t, tt.kind, within.Err())
					require.Equal(t, tt.cause, context.Cause(within))
					derived, cancel := context.WithCancel(c)
					defer cancel()
					require.Equal(t, tt.kind, derived.Err())
					require.Equal(t, tt.cause, context.Cause(derived))
					synctest.Wait()
					require.Equal(t, tt.kind != nil, ended(c))
					require.Equal(t, tt.kind != nil, ended(within))
					endFirst(nil)
					endOther(nil)
				})
			})
		}
	}
}

// A select over the channels of All ends with any of the three that a Ctx of a Ctx depends on, and a Ctx without a waiter
// has registered nothing with them.
func TestAllChannels(t *testing.T) {
	t.Parallel()
	for n := range 3 {
		var ctxs [3]context.Context
		var ends [3]context.CancelFunc
		for i := range ctxs {
			ctxs[i], ends[i] = context.WithCancel(context.Background())
			defer ends[i]()
		}
		in := either.Of(ctxs[0], ctxs[1], nil)
		c := either.Of(in, ctxs[2], nil)
		require.False(t, ended(c))
		ends[n]()
		require.True(t, ended(c))
		require.Error(t, c.Err())
	}
}

// Without a waiter a Ctx is one allocation.
func TestAllocs(t *testing.T) {
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { c := either.Of(context.Background(), context.Background(), nil); _ = ended(c); c.Release() }), 1.0)
}

// A timeout as the other context is a deadline to who looks at Err.
func TestTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := either.Bound{For: 5 * time.Second}
		c := either.Of(context.WithoutCancel(t.Context()), b.Context(), nil)
		begun := time.Now()
		<-c.Done()
		require.Equal(t, 5*time.Second, time.Since(begun))
		require.Equal(t, context.DeadlineExceeded, c.Err())
		require.Equal(t, context.DeadlineExceeded, context.Cause(c))
	})
}

// Those that are bound at about the same time share a context, and none waits longer than it may.
func TestBound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := either.Bound{For: 5 * time.Second}
		first := b.Context()
		time.Sleep(50 * time.Millisecond)
		require.Same(t, first, b.Context())
		time.Sleep(51 * time.Millisecond)
		begun, second := time.Now(), b.Context()
		require.NotSame(t, first, second)
		<-second.Done()
		require.Equal(t, 5*time.Second, time.Since(begun))
	})
}

// Code that has read an error finds its cause, also before the goroutine that passes on the end of the other context has run.
func TestErrHasItsCause(t *testing.T) {
	t.Parallel()
	cause := errors.New("closed")
	for range 200 {
		other, cancel := context.WithCancel(t.Context())
		c := either.Of(t.Context(), other, cause)
		c.Done()
		cancel()
		if c.Err() == nil || context.Cause(c) != cause {
			t.Fatalf("%v, because of %v", c.Err(), context.Cause(c))
		}
		c.Release()
	}
}
