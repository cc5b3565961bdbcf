package virtual

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/idempotency"
)

func (d *desk) store() *idempotency.Store {
	d.t.Helper()
	s, err := idempotency.NewStore(d.session, "store", &idempotency.Options{NearQuota: 2}) // etcdfake has no quota
	require.NoError(d.t, err)
	return s
}

var payment = idempotency.Key{Scope: "tenant", Op: "pay", ID: "1"}

// A duplicate of a request whose process has died is sent away for as long as the lease lives,
// as soon as a renewal is missing; and of one whose process lives, for a second.
func TestRetryAfter(t *testing.T) {
	for _, alive := range []time.Duration{0, 1500 * time.Millisecond, 31 * time.Second} {
		bubble(t, 2, func(t *testing.T, on []*desk) {
			a, b := on[0].store(), on[1].store()
			granted := time.Now()
			_, _, err := a.Begin(t.Context(), payment, nil)
			require.NoError(t, err)
			ask := func(opts ...idempotency.Option) (*idempotency.InProgressError, *idempotency.Attempt) {
				var busy *idempotency.InProgressError
				at, _, err := b.Begin(t.Context(), payment, nil, opts...)
				require.True(t, err == nil || errors.As(err, &busy), "%v", err)
				return busy, at
			}
			for time.Since(granted) < alive {
				busy, _ := ask(idempotency.Wait(0))
				require.Equal(t, time.Second, busy.RetryAfter)
				time.Sleep(time.Second)
			}
			on[0].client.Stall() // as of a process that was killed
			renewed := granted.Add(time.Since(granted) / (ttl / 3) * (ttl / 3))
			ends := renewed.Add(ttl)
			refused := 0
			for {
				now := time.Now()
				busy, at := ask(idempotency.Wait(0))
				if at != nil {
					require.False(t, now.Before(ends))
					require.Equal(t, 2, at.Attempt())
					require.NoError(t, at.Release(t.Context()))
					break
				}
				refused++
				require.GreaterOrEqual(t, busy.RetryAfter, time.Second)
				require.LessOrEqual(t, busy.RetryAfter, ttl)
				if now.Sub(renewed) >= ttl/3+time.Second {
					require.False(t, now.Add(busy.RetryAfter).Before(ends), "%v after %v the lease has %v", busy.RetryAfter, now.Sub(renewed), ends.Sub(now))
					// The same for one that has waited, and for those of its process that have
					// waited with it.
					both := make(chan time.Duration, 2)
					for range 2 {
						go func() {
							var busy *idempotency.InProgressError
							_, _, err := b.Begin(context.Background(), payment, nil, idempotency.Wait(100*time.Millisecond))
							errors.As(err, &busy)
							both <- busy.RetryAfter
						}()
					}
					for range 2 {
						require.GreaterOrEqual(t, <-both, time.Until(ends))
					}
				}
				time.Sleep(busy.RetryAfter) // as the client does
			}
			require.LessOrEqual(t, refused, int(ttl/3/time.Second)+3)
			require.Less(t, time.Since(ends), 3*time.Second)
		})
	}
}

// Duplicates that are refused for the same session share one LeaseTimeToLive per second, whichever
// request they are for.
func TestRetryAfterIsShared(t *testing.T) {
	bubble(t, 2, func(t *testing.T, on []*desk) {
		a, b := on[0].store(), on[1].store()
		keys := []idempotency.Key{payment, {Scope: "tenant", Op: "pay", ID: "2"}}
		for _, k := range keys {
			_, _, err := a.Begin(t.Context(), k, nil)
			require.NoError(t, err)
		}
		var asked atomic.Int64
		on[1].client.Inject(func(m etcdfake.Message) etcdfake.Fault {
			if m.Method == "LeaseTimeToLive" {
				asked.Add(1)
			}
			return etcdfake.Fault{}
		})
		for second := range int64(3) {
			var all sync.WaitGroup
			for range 10 {
				for _, k := range keys {
					all.Go(func() {
						_, _, err := b.Begin(t.Context(), k, nil, idempotency.Wait(0))
						var busy *idempotency.InProgressError
						assert.ErrorAs(t, err, &busy)
						assert.Equal(t, time.Second, busy.RetryAfter)
					})
				}
			}
			all.Wait()
			require.Equal(t, second+1, asked.Load())
			time.Sleep(time.Second)
		}
	})
}
