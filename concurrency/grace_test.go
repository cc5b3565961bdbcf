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
	if testing.Short() {
		t.Skip("it waits for a lease: 4 s")
	}
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	const margin = 2 * time.Second
	s, c := f.Session(&concurrency.SessionOptions{TTL: 4 * time.Second, Margin: margin})
	p := acquire(t, ctx, sem(t, s, "x", 1))
	slot := f.Keys("queue/")[0]
	gone := f.Client().Watch(ctx, slot, clientv3.WithRev(p.Token()+1))
	c.BlackHole()
	closed(t, p.Lost(), "the deadline passes")
	deadline := p.Deadline()
	c.Heal()
	for resp := range gone {
		require.NoError(t, resp.Err())
		for _, ev := range resp.Events {
			require.Equal(t, clientv3.EventTypeDelete, ev.Type)
			require.False(t, time.Now().Before(deadline.Add(margin)), "the permit went to others while its work was stopping")
			return
		}
	}
	require.Fail(t, "the watch ended")
}
