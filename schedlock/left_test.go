package schedlock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A run that has ended, and a claim that was refused, leave nothing behind that lives as
// long as the lease: neither memory, nor a goroutine at the lease's end, which would hold up
// the runs that must learn of the loss.
func TestEndedRunsLeaveNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of runs")
	}
	f := shared(t)
	lost := make(chan struct{})
	in := f.instance(&concurrency.SessionOptions{TTL: 300 * time.Second, Hooks: testkit.Trace{SessionLost: func(clientv3.LeaseID, error) { close(lost) }}.Hooks()}, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	const jobs, each = 8, 100
	next := 0 // tick
	work := func(each int) {
		var wg sync.WaitGroup
		for j := range jobs {
			wg.Go(func() {
				for n := range each {
					for range 2 { // the second one is refused
						_, err := in.Do(ctx, fmt.Sprintf("job%d", j), nothing, schedlock.Tick(tick(next+n)))
						assert.NoError(t, err)
					}
				}
			})
		}
		wg.Wait()
		next += each
	}
	work(80) // more than a job remembers
	kept, where := testkit.Kept(func() { work(each) })
	assert.Less(t, kept, int64(200<<10), "%d runs that have ended keep it:\n%s", jobs*each, where)

	before := testkit.Started()
	_, err := f.Client().Revoke(ctx, in.sess.Lease())
	require.NoError(t, err)
	closed(t, lost, "the loss of the session")
	require.NoError(t, in.sess.Close(ctx)) // which waits for what ends the epoch
	started := testkit.Started() - before
	assert.Less(t, started, uint64(jobs*each/10), "goroutines that the end of the lease has started")
	t.Logf("%d bytes kept, %d goroutines started", kept, started)
}
