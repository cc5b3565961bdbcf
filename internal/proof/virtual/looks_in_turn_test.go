package virtual

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// A688: however many tries a process makes at a total that is full, it asks etcd for few of them at a time.
func TestTriesLookAtATotalInTurn(t *testing.T) {
	t.Parallel()
	const calls, atOnce, answer = 400, 128, 40 * time.Millisecond
	bubble(t, 2, func(t *testing.T, on []*desk) {
		limiter := func(d *desk) *concurrency.KeyedLimiter {
			lim, err := concurrency.NewKeyedLimiter(d.session, "llm", 1, &concurrency.KeyedLimiterOptions{Total: 1})
			require.NoError(t, err)
			return lim
		}
		there, here := limiter(on[1]), limiter(on[0])
		p, err := there.Key("a").Acquire(within(t, time.Minute))
		require.NoError(t, err)
		_, err = here.Key("b").TryAcquire(within(t, time.Minute))
		require.ErrorIs(t, err, concurrency.ErrFull)

		var mu sync.Mutex
		var looks []time.Time
		on[0].client.Inject(func(m etcdfake.Message) etcdfake.Fault {
			if !ofTotal(m) {
				return etcdfake.Fault{}
			}
			mu.Lock()
			defer mu.Unlock()
			looks = append(looks, time.Now())
			return etcdfake.Fault{ResponseDelay: answer}
		})
		var ended sync.WaitGroup
		for i := range calls {
			ended.Go(func() {
				_, err := here.Key(fmt.Sprint(i)).TryAcquire(within(t, time.Minute))
				require.ErrorIs(t, err, concurrency.ErrFull)
			})
		}
		ended.Wait()
		require.Len(t, looks, calls)
		for i, at := range looks {
			if i >= atOnce {
				require.GreaterOrEqual(t, at.Sub(looks[i-atOnce]), answer, "look %d", i)
			}
		}
		require.NoError(t, p.Release(t.Context()))
	})
}

// ofTotal reports whether a message reads the queue of a total.
func ofTotal(m etcdfake.Message) bool {
	r, ok := m.Body.(*pb.RangeRequest)
	return ok && strings.Contains(string(r.Key), "/total/")
}
