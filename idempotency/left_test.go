package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// A request that has ended, however it did, leaves nothing behind that lives as long as the
// lease: neither memory, nor a goroutine at the lease's end, which would hold up the attempts
// that must learn of the loss.
func TestEndedRequestsLeaveNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("2,500 requests")
	}
	f := shared(t)
	lost := make(chan struct{})
	in := f.instance(&concurrency.SessionOptions{TTL: 300 * time.Second, Hooks: testkit.Trace{SessionLost: func(clientv3.LeaseID, error) { close(lost) }}.Hooks()},
		&idempotency.Options{CacheBytes: -1})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var requests atomic.Int64
	failed := errors.New("failed")
	work := func(n int) {
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				for i := requests.Add(1); i <= int64(n); i = requests.Add(1) {
					k := key(fmt.Sprintf("%d of %d", i, n))
					what := idempotency.Action(i%4 + 1) // the fourth returns a value
					do := func() error {
						_, err := idempotency.Do(ctx, in.Store, k, nil, func(context.Context, *idempotency.Attempt) (int64, error) {
							if what > idempotency.Abandon {
								return i, nil
							}
							return 0, failed
						}, idempotency.OnError(func(error) idempotency.Action { return what }))
						return err
					}
					if err := do(); what > idempotency.Abandon && err != nil || what <= idempotency.Abandon && !errors.Is(err, failed) {
						t.Error(err)
					}
					if i%8 == 7 {
						assert.NoError(t, do()) // a replay
					}
				}
			})
		}
		wg.Wait()
		requests.Store(0)
	}
	const n = 2000 // the contexts that calls share for five seconds keep some 70 kB, however many calls there are
	work(500)
	kept, where := testkit.Kept(func() { work(n) })
	assert.Less(t, kept, int64(128<<10), "%d requests that have ended keep it:\n%s", n, where)

	before := testkit.Started()
	_, err := f.Client().Revoke(ctx, in.sess.Lease())
	require.NoError(t, err)
	closed(t, lost, "the loss of the session")
	require.NoError(t, in.sess.Close(ctx)) // which waits for what ends the epoch
	started := testkit.Started() - before
	assert.Less(t, started, uint64(n/30), "goroutines that the end of the lease has started")
	t.Logf("%d bytes kept, %d goroutines started", kept, started)
}
