package virtual

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// Calls that come while the session has no lease ask in turn, as those do that have lost theirs.
func TestCallsBetweenLeasesAskInTurn(t *testing.T) {
	const callers, atOnce, trip = 300, 32, 10 * time.Millisecond
	bubble(t, 2, func(t *testing.T, on []*desk) {
		d, other := on[0], on[1]
		held := other.acquire()
		d.semaphore(1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var mu sync.Mutex
		var now, most int
		d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
			r, ok := m.Body.(*etcdserverpb.TxnRequest)
			if !ok || m.Response || !strings.Contains(r.String(), "/queue/") {
				return etcdfake.Fault{}
			}
			mu.Lock()
			defer mu.Unlock()
			now++
			most = max(most, now)
			time.AfterFunc(trip, func() { mu.Lock(); now--; mu.Unlock() })
			return etcdfake.Fault{RequestDelay: trip / 2, ResponseDelay: trip / 2}
		})
		lease := d.session.Lease()
		d.client.Stall()
		for d.session.Lease() == lease {
			time.Sleep(10 * time.Millisecond)
		}
		var calls sync.WaitGroup
		for range callers { // an outage: callers come while there is no lease
			calls.Go(func() { _, _ = d.semaphore(1).Acquire(ctx) })
			time.Sleep(time.Millisecond)
		}
		d.client.Heal()
		time.Sleep(10 * time.Second)
		mu.Lock()
		t.Log("most at once:", most)
		bad := most > atOnce
		mu.Unlock()
		d.client.Inject(nil)
		cancel()
		calls.Wait()
		require.NoError(t, held.Release(t.Context()))
		synctest.Wait()
		require.False(t, bad)
	})
}
