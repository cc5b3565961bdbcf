package concurrency_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// What has ended leaves nothing behind that lives as long as the lease: neither memory, nor
// a goroutine at the lease's end, which would hold up those that must learn of the loss.
func TestEndedHoldersLeaveNothing(t *testing.T) {
	f := shared(t)
	lost := make(chan struct{})
	o := idle()
	o.Hooks = testkit.Trace{SessionLost: func(clientv3.LeaseID, error) { close(lost) }}.Hooks()
	s, _ := f.Session(o)
	ctx := ctxT(t)
	m, err := concurrency.NewMutex(s, "m")
	require.NoError(t, err)
	el, err := concurrency.NewElection(s, "el")
	require.NoError(t, err)
	epoch, err := engine.Of(s).Live(ctx)
	require.NoError(t, err)
	entered, permits := 10_000, 200
	if testing.Short() {
		entered, permits = 10_000, 60
	}
	work := func(entered, permits int) {
		for range entered {
			leave, ok := epoch.Enter(t.Context(), "job")
			require.True(t, ok)
			leave()
			leave() // is once
		}
		for range permits {
			p, err := m.Lock(ctx)
			require.NoError(t, err)
			p.StopRequested()
			_, err = m.TryLock(ctx)
			require.ErrorIs(t, err, concurrency.ErrFull)
			waited := make(chan error)
			go func() {
				waited <- m.Do(ctx, func(ctx context.Context, p *concurrency.Permit) error {
					return el.Lead(ctx, func(context.Context, *concurrency.Permit) error { return nil })
				})
			}()
			up, cancel := context.WithCancel(ctx)
			cancel()
			_, err = m.Lock(up)
			require.ErrorIs(t, err, context.Canceled)
			_, err = m.Lock(ctx, concurrency.Wait(5*time.Millisecond))
			require.Error(t, err)
			require.NoError(t, p.Release(ctx))
			require.NoError(t, <-waited)
		}
	}
	work(10, 10)
	kept, where := testkit.Kept(func() { work(entered, permits) })
	assert.Less(t, kept, int64(64<<10), "%d holders and the permits of %d rounds that have ended keep it:\n%s", entered, permits, where)

	before := testkit.Started()
	_, err = f.Client().Revoke(ctx, s.Lease())
	require.NoError(t, err)
	closed(t, lost, "the loss of the session")
	require.NoError(t, s.Close(ctx)) // which waits for the goroutine that ends the epoch
	started := testkit.Started() - before
	assert.Less(t, started, uint64(entered/10), "goroutines that the end of the lease has started")
	t.Logf("%d bytes kept, %d goroutines started", kept, started)
}
