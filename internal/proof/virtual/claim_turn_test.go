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

	"github.com/etcdkit/etcdkit/internal/proof/fakeetcd"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A call has waited for its place in the order of its tick. While it waits for a turn behind claims
// that hang, another process claims the tick. When its ctx ends, it returns that, not ctx's error.
func TestTickClaimedWhileWaitingForATurn(t *testing.T) {
	bubble(t, 2, func(t *testing.T, on []*desk) {
		a, err := schedlock.New(on[0].session, nil)
		require.NoError(t, err)
		b, err := schedlock.New(on[1].session, nil)
		require.NoError(t, err)
		synctest.Wait()
		var hung atomic.Int32
		on[0].client.Inject(func(m fakeetcd.Message) fakeetcd.Fate {
			txn, ok := m.Body.(*etcdserverpb.TxnRequest)
			if !ok || len(txn.Success) == 0 || !strings.HasSuffix(string(txn.Success[0].GetRequestPut().GetKey()), "/lock") {
				return fakeetcd.Fate{}
			}
			hung.Add(1)
			return fakeetcd.Fate{LoseRequest: true, LoseAnswer: true}
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		tick := time.Now()
		nothing := func(context.Context, *schedlock.Run) error { return nil }
		var wg sync.WaitGroup
		for _, name := range []string{"u", "v", "w", "x"} {
			wg.Go(func() { _, _ = a.Do(ctx, name, nothing, schedlock.Tick(tick)) })
		}
		time.Sleep(300 * time.Millisecond)
		require.EqualValues(t, 4, hung.Load(), "the turns are taken, until a second after the claims were sent")

		var res schedlock.Result
		wg.Go(func() { res, err = a.Do(ctx, "job", nothing, schedlock.Tick(tick)) })
		time.Sleep(300 * time.Millisecond) // longer than it waits for its place in the order
		by, claimed := b.Do(t.Context(), "job", nothing, schedlock.Tick(tick))
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
