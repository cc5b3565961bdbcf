package virtual

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// Waiting calls of a session that has lost its lease queue anew a few at a time, those
// first whose calls began first. Their former requests are not deleted one by one: with
// the lease, which the session revokes, all of them go. Only those with IDs are, because
// the ID is needed.
func TestWaitersQueueAnewAFewAtATime(t *testing.T) {
	t.Parallel()
	const waiters, atOnce, trip = 300, 32, 10 * time.Millisecond
	for name, tt := range map[string]struct {
		lose func(d *desk)
		ids  bool
		txns int // for each call
	}{
		"at its deadline": {lose: outlast, txns: 1},
		"with IDs":        {lose: outlast, ids: true, txns: 2},
		"expired":         {lose: func(d *desk) { d.server.Expire(d.session.Lease()) }, txns: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 2, func(t *testing.T, on []*desk) {
				d, other := on[0], on[1]
				held := other.acquire()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var calls sync.WaitGroup
				for i := range waiters {
					opts := []concurrency.AcquireOption{concurrency.Note(strconv.Itoa(i))}
					if tt.ids {
						opts = append(opts, concurrency.ID(fmt.Sprint("id", i)))
					}
					calls.Go(func() { _, _ = d.semaphore(1).Acquire(ctx, opts...) })
					time.Sleep(time.Millisecond)
				}
				time.Sleep(time.Second)
				lease := d.session.Lease()

				var mu sync.Mutex
				var sent []time.Time // Txns about requests
				d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
					r, ok := m.Body.(*etcdserverpb.TxnRequest)
					if !ok || m.Response {
						return etcdfake.Fault{}
					}
					if !strings.Contains(r.String(), "/queue/") {
						return etcdfake.Fault{}
					}
					mu.Lock()
					defer mu.Unlock()
					sent = append(sent, time.Now())
					return etcdfake.Fault{RequestDelay: trip / 2, ResponseDelay: trip / 2}
				})
				tt.lose(d)
				anew := func() []concurrency.Request {
					st, err := other.semaphore(1).Status(t.Context())
					require.NoError(t, err)
					return slices.DeleteFunc(st.Waiters, func(r concurrency.Request) bool { return r.Lease == lease })
				}
				begun := time.Now()
				for len(anew()) < waiters {
					require.Less(t, time.Since(begun), 30*time.Second)
					time.Sleep(10 * time.Millisecond)
				}
				time.Sleep(time.Minute) // what is left is cleaned up
				require.Len(t, other.server.Keys(root+gate+"/queue/"), waiters+1)

				d.client.Inject(nil)
				mu.Lock()
				times := slices.SortedFunc(slices.Values(sent), time.Time.Compare)
				mu.Unlock()
				require.LessOrEqual(t, len(times), tt.txns*waiters+atOnce)
				for i := range times[:max(0, len(times)-atOnce)] {
					require.GreaterOrEqual(t, times[i+atOnce].Sub(times[i]), trip, "more than %d are under way", atOnce)
				}
				for place, r := range anew() {
					i, err := strconv.Atoi(r.Note)
					require.NoError(t, err)
					require.InDelta(t, i, place, 2*atOnce, "they keep their order, but for those under way at the same time")
				}
				cancel()
				calls.Wait()
				require.NoError(t, held.Release(t.Context()))
				synctest.Wait()
			})
		})
	}
}

// outlast cuts a process off until the deadline of its lease. It is back before etcd has
// let that expire.
func outlast(d *desk) {
	lease := d.session.Lease()
	d.client.Stall()
	for d.session.Lease() == lease {
		time.Sleep(10 * time.Millisecond)
	}
	d.client.Heal()
}
