package virtual

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// A victim of an early end (eviction, takeover) learns of it by the one range that
// its session watches, also when that watch has lost the notice and continues: the
// range is listed anew within one and a half TTLs.
func TestTrapS9EarlyEndIsReported(t *testing.T) {
	t.Parallel()
	for range 8 { // the moment of the list is random
		bubble(t, 2, func(t *testing.T, on []*desk) {
			d, admin := on[0], on[1]
			p, err := d.semaphore(1).Acquire(within(t, time.Minute), concurrency.ID("i"))
			require.NoError(t, err)
			synctest.Wait() // the session has listed its range
			var lost, sent atomic.Int64
			d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
				r, answer := m.Body.(*pb.WatchResponse)
				switch {
				case answer && len(r.Events) > 0 && strings.Contains(string(r.Events[0].Kv.Key), "/notice/"):
					lost.Add(1)
					return etcdfake.Fault{DropResponse: true}
				case m.Method == "Watch" && !m.Response:
					sent.Add(1)
				}
				return etcdfake.Fault{}
			})
			require.NoError(t, admin.semaphore(1).Evict(t.Context(), "i", "why"))
			evicted := time.Now()
			synctest.Wait()
			require.NotZero(t, lost.Load())
			require.NoError(t, p.Err(), "the word was lost, and the permit believes in itself")
			ended(t, p)
			require.LessOrEqual(t, time.Since(evicted), ttl*3/2, "the list shows what the watch has lost")
			require.ErrorIs(t, p.Err(), concurrency.ErrEvicted)
			require.ErrorContains(t, p.Err(), "why")
			require.Zero(t, sent.Load(), "the watch was not broken")
		})
	}
}
