package concurrency_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// Each error that carries data has a value to compare with.
func TestSentinels(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	o, _ := f.Session(nil)
	sm := sem(t, s, "x", 2)
	p := acquire(t, ctx, sm, concurrency.ID("a"))
	_, err := sem(t, o, "x", 2).Acquire(ctx, concurrency.ID("a"))
	require.ErrorIs(t, err, concurrency.ErrHeld)
	require.NotErrorIs(t, err, concurrency.ErrFull)
	_, err = sem(t, o, "x", 3).Acquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrLimitMismatch)
	require.NotErrorIs(t, err, concurrency.ErrHeld)
	require.NoError(t, p.Release(ctx))
}

// A limit of 0 that is stored pauses; a name that no program has used has none.
func TestStatusOfAnUnknownName(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	st, err := sem(t, s, "nobody's", 5).Status(ctx)
	require.NoError(t, err)
	require.Equal(t, []any{0, false}, []any{st.Limit, st.Stored})
	sm := sem(t, s, "x", 5)
	require.NoError(t, sm.SetLimit(ctx, 0, concurrency.CreateLimit()))
	st, err = sm.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, []any{0, true}, []any{st.Limit, st.Stored})
	st, err = mutex(t, s, "x").Status(ctx)
	require.NoError(t, err)
	require.Equal(t, []any{1, true}, []any{st.Limit, st.Stored})
}

// The end of a caller's ctx is not taken for the end of the session, whatever its cause.
func TestCtxOfAnotherSession(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sm)
	for name, call := range map[string]func(context.Context) error{
		"Acquire":  func(ctx context.Context) error { _, err := sm.Acquire(ctx); return err },
		"Status":   func(ctx context.Context) error { _, err := sm.Status(ctx); return err },
		"SetLimit": func(ctx context.Context) error { return sm.SetLimit(ctx, 1) },
		"Campaign": func(ctx context.Context) error {
			el, err := concurrency.NewElection(s, "e")
			require.NoError(t, err)
			first, err := el.Campaign(ctxT(t))
			require.NoError(t, err)
			defer func() { require.NoError(t, first.Release(ctxT(t))) }()
			_, err = el.Campaign(ctx)
			return err
		},
	} {
		ended, cancel := context.WithCancelCause(ctx)
		time.AfterFunc(20*time.Millisecond, func() { cancel(concurrency.ErrClosed) })
		if name == "Status" || name == "SetLimit" {
			cancel(concurrency.ErrClosed)
		}
		err := call(ended)
		require.ErrorIs(t, err, context.Canceled, name)
		require.NotErrorIs(t, err, concurrency.ErrClosed, name)
	}
	require.NoError(t, p.Release(ctx))
}

func TestMarginWithoutAUnit(t *testing.T) {
	t.Parallel()
	f := shared(t)
	_, err := concurrency.NewSession(ctxT(t), f.Client(), "x", &concurrency.SessionOptions{TTL: 5 * time.Second, Margin: 3})
	require.ErrorIs(t, err, concurrency.ErrInvalid)
	require.ErrorContains(t, err, "Margin 3ns is not between 10ms and half of the TTL")
}
