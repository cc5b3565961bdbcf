package concurrency_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// N5: what a function returns is printed once by the error of Do and of Lead, also if it is
// what has ended the function's ctx.
func TestErrorsArePrintedOnce(t *testing.T) {
	t.Parallel()
	own := errors.New("the function's own")
	type hold struct {
		f  fixture
		s  *concurrency.Session
		sm *concurrency.Semaphore
		p  *concurrency.Permit
	}
	for name, end := range map[string]func(t *testing.T, h hold){
		"evicted":       func(t *testing.T, h hold) { require.NoError(t, h.sm.EvictToken(ctxT(t), h.p.Token(), "why")) },
		"lease lost":    func(t *testing.T, h hold) { require.NoError(t, h.f.RevokeLease(ctxT(t), h.s.Lease())) },
		"held too long": func(*testing.T, hold) {},
		"closed": func(t *testing.T, h hold) {
			ctx, cancel := context.WithCancel(ctxT(t))
			cancel()
			go func() { _ = h.s.Close(ctx) }()
		},
	} {
		for how, result := range map[string]func(context.Context) error{
			"the cause":         context.Cause,
			"the cause wrapped": func(ctx context.Context) error { return fmt.Errorf("step 2: %w", context.Cause(ctx)) },
			"its own":           func(context.Context) error { return own },
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				f := shared(t)
				s, _ := f.session(nil)
				sm := sem(t, s, "x", 1)
				err := sm.Do(ctxT(t), func(ctx context.Context, p *concurrency.Permit) error {
					end(t, hold{f, s, sm, p})
					closed(t, ctx.Done(), "its ctx ends")
					return result(ctx)
				}, concurrency.MaxHold(map[bool]time.Duration{true: 50 * time.Millisecond, false: time.Hour}[name == "held too long"]))
				require.ErrorIs(t, err, concurrency.ErrLost)
				require.Equal(t, 1, strings.Count(err.Error(), "(token "), err)
				require.Equal(t, how == "its own", errors.Is(err, own))
			})
		}
	}
	t.Run("Lead", func(t *testing.T) {
		t.Parallel()
		f := shared(t)
		s, _ := f.session(nil)
		ctx, cancel := context.WithCancel(ctxT(t))
		err := election(t, s, "x").Lead(ctx, func(work context.Context, p *concurrency.Permit) error {
			require.NoError(t, f.RevokeLease(ctxT(t), s.Lease()))
			closed(t, work.Done(), "its ctx ends")
			cancel()
			return context.Cause(work)
		})
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, concurrency.ErrLost)
		require.Equal(t, 1, strings.Count(err.Error(), "(token "), err)
	})
}
