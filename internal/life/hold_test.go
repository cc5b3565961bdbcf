package life

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// hold is a Handle that work runs under.
type hold struct{ ends }

func (hold) Lost(cause error) bool { return errors.Is(cause, errLost) || errors.Is(cause, errTaken) }

// Of the ways in which what ctx runs under can end, only losses count, of each hold around it, and also once its parent and ctx
// have ended.
func TestAfterLoss(t *testing.T) {
	t.Parallel()
	handle := ends{func() error { return errLost }, func() error { return errLate }, func(error) {}}
	for name, c := range map[string]struct {
		do   func(ctx context.Context, outer, inner *Life, leave func()) context.Context
		want []error
	}{
		"nothing":            {func(ctx context.Context, _, _ *Life, _ func()) context.Context { return ctx }, nil},
		"the inner is taken": {func(ctx context.Context, _, in *Life, _ func()) context.Context { in.End(errTaken); return ctx }, []error{errTaken}},
		"the outer is taken": {func(ctx context.Context, out, _ *Life, _ func()) context.Context { out.End(errTaken); return ctx }, []error{errTaken}},
		"both are": {func(ctx context.Context, out, in *Life, _ func()) context.Context {
			out.End(errTaken)
			in.End(errLost)
			return ctx
		}, []error{errTaken, errLost}},
		"the inner is released": {func(ctx context.Context, _, in *Life, _ func()) context.Context { in.End(errDone); return ctx }, nil},
		"released, the outer is taken": {func(ctx context.Context, out, in *Life, _ func()) context.Context {
			in.End(errDone)
			out.End(errTaken)
			return ctx
		}, []error{errTaken}},
		"the caller has left": {func(ctx context.Context, _, _ *Life, leave func()) context.Context { leave(); return ctx }, nil},
		"the caller has left, one is taken": {func(ctx context.Context, out, _ *Life, leave func()) context.Context {
			leave()
			synctest.Wait()
			out.End(errTaken)
			return ctx
		}, []error{errTaken}},
		"around, taken": {func(_ context.Context, out, _ *Life, _ func()) context.Context {
			out.End(errTaken)
			return out.Around(context.Background())
		}, []error{errTaken}},
		"detached work": {func(ctx context.Context, _, in *Life, _ func()) context.Context {
			in.End(errTaken)
			return context.WithoutCancel(ctx)
		}, []error{errTaken}},
		"a life that is no hold has ended": {func(ctx context.Context, _, _ *Life, _ func()) context.Context {
			return begun(ctx, &lease{}, handle).Context()
		}, nil},
		"under a life that is no hold, taken": {func(ctx context.Context, out, _ *Life, _ func()) context.Context {
			out.End(errTaken)
			return begun(ctx, &lease{}, handle).Context()
		}, []error{errTaken}},
	} {
		for _, late := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					base, leave := context.WithCancel(t.Context())
					defer leave()
					trust := &lease{until: in(time.Hour)}
					outer := begun(base, trust, hold{handle})
					inner := begun(outer.Context(), trust, hold{handle})
					work := inner.Context()
					var got []error
					lost := make(chan error, 4)
					watch := func(ctx context.Context) func() { return AfterLoss(ctx, func(cause error) { lost <- cause }) }
					stop := func() {}
					if !late {
						stop = watch(work)
						c.do(work, outer, inner, leave)
					} else {
						stop = watch(c.do(work, outer, inner, leave))
					}
					synctest.Wait()
					stop()
					close(lost)
					for cause := range lost {
						got = append(got, cause)
					}
					require.ElementsMatch(t, c.want, got)
				})
			})
		}
	}
}

// After stop a loss calls nothing.
func TestAfterLossStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := begun(t.Context(), &lease{until: in(time.Hour)}, hold{})
		AfterLoss(l.Context(), func(error) { t.Error("called") })()
		l.End(errTaken)
		synctest.Wait()
	})
}

// Holds are those under which ctx runs, the innermost first, and no life that is no hold.
func TestHolds(t *testing.T) {
	t.Parallel()
	trust := &lease{until: in(time.Hour)}
	outer := begun(t.Context(), trust, &hold{})
	other := begun(outer.Context(), trust, ends{})
	inner := begun(other.Context(), trust, &hold{})
	var got []Hold
	for h := range Holds(context.WithoutCancel(inner.Context())) {
		got = append(got, h)
	}
	require.Len(t, got, 2)
	require.Same(t, inner.handle, got[0])
	require.Same(t, outer.handle, got[1])
	for range Holds(t.Context()) {
		t.Error("no hold")
	}
}
