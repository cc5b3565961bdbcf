package concurrency_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// T3: as many calls as have turns wait for a member that is silent, say. The others of the session
// continue a moment later.
func TestHungCallsHoldUpNoOthers(t *testing.T) {
	t.Parallel()
	const sends = 128
	f := shared(t)
	s, c := f.Session(idle())
	a, b := sem(t, s, "a", 1000), sem(t, s, "b", 1000)
	for _, sm := range []*concurrency.Semaphore{a, b} {
		require.NoError(t, acquire(t, ctxT(t), sm).Release(ctxT(t)))
	}
	held := c.Inject(embedtest.Fault{Method: "Txn", Times: -1, Do: embedtest.HoldRequest, Match: func(m string, msg any) bool {
		r, ok := msg.(*etcdserverpb.TxnRequest)
		return ok && txn(true)(m, msg) && strings.Contains(string(r.Success[0].GetRequestPut().GetKey()), "/semaphore/a/")
	}})
	ctx, cancel := context.WithCancel(ctxT(t))
	defer cancel()
	var wg sync.WaitGroup
	for range sends {
		wg.Go(func() { _, _ = a.Acquire(ctx) })
	}
	require.Eventually(t, func() bool { return held.Hits() >= sends }, soon, 5*time.Millisecond)
	p, err := b.Acquire(ctxT(t), concurrency.Wait(soon))
	require.NoError(t, err)
	require.NoError(t, p.Release(ctxT(t)))
	cancel()
	wg.Wait()
}
