package schedlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/schedlock"
)

// A246: a survivor that has started after the claim, and has no Job, reports the loss while it lives: it has seen the claim by
// a read, or not at all.
func TestLostRunThatBeganBefore(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(ctx context.Context, in instance) error{
		"a call for the same tick": func(ctx context.Context, in instance) error {
			_, err := in.Do(ctx, "job", nothing, schedlock.Tick(tick(1)))
			return err
		},
		"a wrapper that was not called": func(_ context.Context, in instance) error {
			_, err := schedlock.Wrap[interface{ Run() }](in.Locker, "job", time.Hour)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			dying := f.instance(nil, nil)
			started, _ := do(ctx, dying.Locker, "job", nil, schedlock.Tick(tick(1)))
			got(t, started, "it starts")
			var calls lostCalls
			survivor := f.instance(nil, calls.options())
			require.NoError(t, begin(ctx, survivor))
			dying.client.Cut()
			require.NoError(t, f.ExpireLease(ctx, dying.sess.Lease()))
			require.Eventually(t, func() bool { return len(calls.records()) == 1 }, soon, 20*time.Millisecond)
			require.Equal(t, dying.sess.Owner(), calls.records()[0].Owner)
		})
	}
}
