package virtual

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// Foreign keys before far requests do not make these look more often: what is far is found behind them.
func TestForeignKeysBeforeFarRequests(t *testing.T) {
	t.Parallel()
	for _, foreign := range []int{0, 10, 40} {
		bubble(t, 2, func(t *testing.T, on []*desk) {
			crowd, d := on[0], on[1]
			holder := crowd.acquire()
			for range 30 {
				crowd.waiter()
			}
			for i := range foreign {
				_, err := crowd.client.Put(t.Context(), fmt.Sprint(root, gate, "/queue/light/foreign-", i), "x")
				require.NoError(t, err)
			}
			ctx, giveUp := context.WithCancel(t.Context())
			waits := make(chan error, 1)
			go func() {
				_, err := d.semaphore(1).Acquire(ctx)
				waits <- err
			}()
			time.Sleep(10 * time.Second)
			var requests atomic.Int64
			d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
				if _, ok := m.Body.(*pb.TxnRequest); ok {
					requests.Add(1)
				}
				return etcdfake.Fault{}
			})
			time.Sleep(20 * time.Second)
			require.LessOrEqual(t, requests.Load(), int64(25), "%d foreign keys", foreign)
			giveUp()
			require.Error(t, <-waits)
			require.NoError(t, holder.Release(t.Context()))
		})
	}
}
