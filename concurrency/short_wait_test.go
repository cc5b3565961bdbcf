package concurrency_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// A Wait that is too short for etcd's answers is no outage.
func TestShortWaitIsNoOutage(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.session(nil)
	other, _ := f.session(nil)
	hold := acquire(t, ctx, sem(t, other, "x", 1))
	sm := sem(t, s, "x", 1)
	_, err := sm.Acquire(ctx, concurrency.Wait(300*time.Millisecond))
	require.ErrorIs(t, err, concurrency.ErrFull)
	c.Delay(30 * time.Millisecond) // a healthy etcd in another region
	for range 3 {
		_, err = sm.Acquire(ctx, concurrency.Wait(100*time.Millisecond))
		require.ErrorIs(t, err, concurrency.ErrFull)
	}
	require.NoError(t, hold.Release(ctx))
}
