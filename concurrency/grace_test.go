package concurrency_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
)

// A lease that was lost at its deadline is not revoked before its margin has
// passed: that is the time in which work under its permits stops.
func TestMarginIsTimeToStop(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	const margin = 1500 * time.Millisecond
	s, c := f.session(&concurrency.SessionOptions{TTL: 3 * time.Second, Margin: margin})
	p := acquire(t, ctx, sem(t, s, "x", 1))
	slot := f.keys("queue/")[0]
	gone := f.Client().Watch(ctx, slot, clientv3.WithRev(p.Token()+1))
	c.BlackHole()
	closed(t, p.Lost(), "the deadline passes")
	lost := time.Now()
	c.Heal()
	for resp := range gone {
		require.NoError(t, resp.Err())
		for _, ev := range resp.Events {
			require.Equal(t, clientv3.EventTypeDelete, ev.Type)
			require.Greater(t, time.Since(lost), margin*2/3, "the permit went to others while its work was stopping")
			return
		}
	}
	require.Fail(t, "the watch ended")
}
