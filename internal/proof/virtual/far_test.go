package virtual

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/fakeetcd"
)

// W6: a far request is evicted, and no watch of the queue brings the deletion of its key. The notice, which
// another watch brings, ends its call at once.
func TestTrapW6NoticeAlone(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		crowd, d := on[0], on[1]
		holder := crowd.acquire()
		for range 30 {
			crowd.waiter()
		}
		waits := make(chan error, 1)
		go func() {
			_, err := d.semaphore(1).Acquire(t.Context())
			waits <- err
		}()
		time.Sleep(10 * time.Second) // it sleeps
		st, err := crowd.semaphore(1).Status(t.Context())
		require.NoError(t, err)
		d.client.Inject(func(m fakeetcd.Message) fakeetcd.Fate {
			r, ok := m.Body.(*pb.WatchResponse)
			if ok && len(r.Events) > 0 && strings.HasPrefix(string(r.Events[0].Kv.Key), root+gate) {
				return fakeetcd.Fate{After: time.Hour}
			}
			return fakeetcd.Fate{}
		})
		own := st.Waiters[len(st.Waiters)-1]
		require.NoError(t, crowd.semaphore(1).EvictToken(t.Context(), own.Token, "no more"))
		synctest.Wait()
		select {
		case err := <-waits:
			require.ErrorIs(t, err, concurrency.ErrEvicted)
		default:
			require.Fail(t, "it still waits")
		}
		require.NoError(t, holder.Release(t.Context()))
	})
}

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
			d.client.Inject(func(m fakeetcd.Message) fakeetcd.Fate {
				if _, ok := m.Body.(*pb.TxnRequest); ok {
					requests.Add(1)
				}
				return fakeetcd.Fate{}
			})
			time.Sleep(20 * time.Second)
			require.LessOrEqual(t, requests.Load(), int64(25), "%d foreign keys", foreign)
			giveUp()
			require.Error(t, <-waits)
			require.NoError(t, holder.Release(t.Context()))
		})
	}
}
