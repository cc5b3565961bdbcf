package virtual

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A call has waited for its place in the order of its tick. While it waits for a turn behind claims
// that hang, another process claims the tick. When its ctx ends, it returns that, not ctx's error.
func TestTickClaimedWhileWaitingForATurn(t *testing.T) {
	bubble(t, 2, func(t *testing.T, on []*desk) {
		a, b := on[0].locker(), on[1].locker()
		synctest.Wait()
		var hung atomic.Int32
		on[0].client.Inject(func(m etcdfake.Message) etcdfake.Fault {
			txn, ok := m.Body.(*etcdserverpb.TxnRequest)
			if !ok || len(txn.Success) == 0 || !strings.HasSuffix(string(txn.Success[0].GetRequestPut().GetKey()), "/lock") {
				return etcdfake.Fault{}
			}
			hung.Add(1)
			return etcdfake.Fault{DropRequest: true, DropResponse: true}
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		tick := time.Now()
		var wg sync.WaitGroup
		for _, name := range []string{"u", "v", "w", "x"} {
			wg.Go(func() { _, _ = a.Do(ctx, name, noWork, schedlock.Tick(tick)) })
		}
		time.Sleep(300 * time.Millisecond)
		require.EqualValues(t, 4, hung.Load(), "the turns are taken, until a second after the claims were sent")

		var res schedlock.Result
		var err error
		wg.Go(func() { res, err = a.Do(ctx, "job", noWork, schedlock.Tick(tick)) })
		time.Sleep(300 * time.Millisecond) // longer than it waits for its place in the order
		by, claimed := b.Do(t.Context(), "job", noWork, schedlock.Tick(tick))
		require.NoError(t, claimed)
		require.Equal(t, schedlock.Ran, by.Outcome)
		synctest.Wait() // its claim is known to the first process
		cancel()
		wg.Wait()
		require.NoError(t, err)
		require.Equal(t, []any{schedlock.Claimed, on[1].session.Owner()}, []any{res.Outcome, res.Owner})
		require.EqualValues(t, 4, hung.Load(), "it sent no claim")
	})
}

// A call waits for its session to come back, and meanwhile its clock is set back by more than
// MaxSkew: the tick that another has run is not started again.
func TestClockSetBackWhileItWaits(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		var back, starts atomic.Int64
		a, err := schedlock.New(on[0].session, &schedlock.Options{Now: func() time.Time { return time.Now().Add(-time.Duration(back.Load())) }})
		require.NoError(t, err)
		b := on[1].locker()
		counted := func(context.Context, *schedlock.Run) error { starts.Add(1); return nil }
		_, err = b.Do(t.Context(), "job", noWork, fireTime(0))
		require.NoError(t, err)
		on[0].client.Refuse()
		time.Sleep(ttl)
		require.Zero(t, on[0].session.Lease())
		tick, done := schedlock.Tick(time.Now()), make(chan jobResult, 1)
		go func() {
			res, err := a.Do(within(t, time.Hour), "job", counted, tick)
			done <- jobResult{res, err, time.Now()}
		}()
		time.Sleep(10 * time.Second)
		require.Empty(t, done, "it waits")
		res, err := b.Do(t.Context(), "job", counted, tick)
		require.NoError(t, err)
		require.Equal(t, schedlock.Ran, res.Outcome)
		back.Store(int64(2 * time.Minute))
		on[0].server.Compact() // so that it does not learn of it
		on[0].client.Heal()
		x := came(t, done, "it returns")
		require.NoError(t, x.err)
		require.False(t, x.res.Outcome.Started(), x.res.Outcome)
		require.EqualValues(t, 1, starts.Load())
	})
}
