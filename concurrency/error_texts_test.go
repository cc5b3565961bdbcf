package concurrency_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
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
				s, _ := f.Session(nil)
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
		s, _ := f.Session(nil)
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

// N5: an error that denies permission names the prefix and the permission that the role needs.
func TestDeniedNamesThePrefix(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, nil)
	f := fixture{testkit.On(t, c)}
	ctx := ctxT(t)
	admin, _ := f.Session(nil) // before passwords
	root := admin.NamespacePrefix()
	require.NoError(t, admin.Close(ctx))
	require.NoError(t, c.AddUser(ctx, "nothing", "secret", "/elsewhere/"))
	s := f.SessionOn(f.PresenceOnly(root), nil)
	nothing := c.NewClient(t, &embedtest.ClientOptions{Username: "nothing", Password: "secret"})
	sm, mu, el := sem(t, s, "x", 1), mutex(t, s, "x"), election(t, s, "x")
	testkit.Denied(t, root, map[string]func() error{
		"NewSession": func() error {
			_, err := concurrency.NewSession(ctx, nothing.Client, "test", &concurrency.SessionOptions{Prefix: f.Root})
			return err
		},
		"Acquire":    func() error { _, err := sm.Acquire(ctx); return err },
		"TryAcquire": func() error { _, err := sm.TryAcquire(ctx); return err },
		"Do":         func() error { return sm.Do(ctx, func(context.Context, *concurrency.Permit) error { return nil }) },
		"Status":     func() error { _, err := sm.Status(ctx); return err },
		"SetLimit":   func() error { return sm.SetLimit(ctx, 2) },
		"Evict":      func() error { return sm.Evict(ctx, "id", "") },
		"EvictToken": func() error { return sm.EvictToken(ctx, 1, "") },
		"ReleaseID":  func() error { return sm.ReleaseID(ctx, "id") },
		"Lock":       func() error { _, err := mu.Lock(ctx); return err },
		"Campaign":   func() error { _, err := el.Campaign(ctx); return err },
		"Lead":       func() error { return el.Lead(ctx, func(context.Context, *concurrency.Permit) error { return nil }) },
		"StepDown":   func() error { _, err := el.StepDown(ctx, ""); return err },
	})
	// The caller's function may have asked another etcd.
	require.Equal(t, rpctypes.ErrPermissionDenied, func() error {
		whole, _ := shared(t).Session(nil)
		return mutex(t, whole, "y").Do(ctx, func(context.Context, *concurrency.Permit) error { return rpctypes.ErrPermissionDenied })
	}())
}
