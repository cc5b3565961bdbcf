package idempotency_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// Clients disconnect while their claims are in flight. The claims of others are not voided for it: each
// of those costs its two Txns, and the fence of the session is not raised.
func TestHangUpsVoidNoClaims(t *testing.T) {
	t.Parallel()
	f := own(t)
	ctx := ctxT(t)
	a := f.instance(nil, nil)
	require.NoError(t, begin(t, a, key("warm")).Commit(ctx, nil))
	const gone, stay = 12, 4
	held := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Do: embedtest.HoldResponse, Times: -1})
	given, hangUp := context.WithCancel(ctx)
	hungUp := make(chan error, gone)
	for n := range gone {
		go func() {
			_, _, err := a.Begin(given, key(fmt.Sprint("gone", n)), "payload", idempotency.LikelyNew())
			hungUp <- err
		}()
	}
	require.Eventually(t, func() bool { return held.Hits() >= 4 }, soon, 5*time.Millisecond)
	attempts := make(chan *idempotency.Attempt, stay)
	for n := range stay {
		go func() {
			at, _, err := a.Begin(ctx, key(fmt.Sprint("stay", n)), "payload", idempotency.LikelyNew())
			if err != nil {
				t.Error(err)
			}
			attempts <- at
		}()
	}
	hangUp()
	hung := time.Now()
	for range gone {
		require.ErrorIs(t, got(t, hungUp, "the call ends"), context.Canceled)
	}
	held.Remove()
	require.NoError(t, held.Release())
	for range stay {
		require.NoError(t, got(t, attempts, "an attempt").Commit(ctx, nil))
	}
	f.noneWorks()
	require.Eventually(t, func() bool { return len(f.Keys("/record/")) == stay+1 }, soon, 5*time.Millisecond)
	presence, err := f.Client().Get(ctx, f.Keys("/alive")[0])
	require.NoError(t, err)
	if took := time.Since(hung); took < time.Second { // as long as the answer to such a claim is waited for
		require.EqualValues(t, 1, presence.Kvs[0].Version, "the fence was not raised")
	} else {
		t.Logf("the claims were settled after %v: it may have been", took)
	}
	// What was given up can be done.
	require.NoError(t, begin(t, a, key("gone0")).Commit(ctx, nil))
}

// BenchmarkHangUps has 32 callers make new requests, while others begin requests and hang
// up within 5 ms, 400 a second or none. It shows how many requests are done in a second,
// the 99th percentile of what one takes, and the Txns that all this costs for each.
func BenchmarkHangUps(b *testing.B) {
	for _, hangUps := range []int{0, 400} {
		b.Run(fmt.Sprintf("%d a second", hangUps), func(b *testing.B) {
			f := durable(b)
			in := f.instance(nil, nil)
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			defer cancel()
			do := func(id string) error {
				_, err := idempotency.Do(ctx, in.Store, key(id), "payload", func(context.Context, *idempotency.Attempt) ([]byte, error) { return []byte("x"), nil })
				return err
			}
			require.NoError(b, do("warm"))
			stop, ended := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(ended)
				var calls sync.WaitGroup
				defer calls.Wait()
				if hangUps == 0 {
					return
				}
				every := time.NewTicker(time.Second / time.Duration(hangUps))
				defer every.Stop()
				for n := 0; ; n++ {
					select {
					case <-every.C:
					case <-stop:
						return
					}
					calls.Go(func() {
						short, hangUp := context.WithTimeout(ctx, rand.N(5*time.Millisecond))
						defer hangUp()
						if at, _, err := in.Begin(short, key(fmt.Sprint("gone", n)), "payload"); err == nil && at != nil {
							_ = at.Release(ctx)
						}
					})
				}
			}()
			in.client.ResetRequests()
			took := make([]time.Duration, b.N)
			var next atomic.Int64
			var callers sync.WaitGroup
			begun := time.Now()
			b.ResetTimer()
			for range 32 {
				callers.Go(func() {
					for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
						at := time.Now()
						if err := do(fmt.Sprint("new", i)); err != nil {
							b.Error(err)
						}
						took[i-1] = time.Since(at)
					}
				})
			}
			callers.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/time.Since(begun).Seconds(), "req/s")
			txns := in.client.Requests()["Txn"]
			close(stop)
			<-ended
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(float64(txns)/float64(b.N), "Txn/req")
		})
	}
}
