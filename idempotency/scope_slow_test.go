package idempotency_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// Where etcd answers more slowly than a count is of use, the new requests of a scope share counts:
// they do not wait for each other's.
func TestScopeCountsAreShared(t *testing.T) {
	t.Parallel()
	const calls, slow = 40, 50 * time.Millisecond
	f := shared(t)
	in := f.instance(nil, &idempotency.Options{MaxPerScope: 1000, NearQuota: 2})
	require.NoError(t, begin(t, in, key("first")).Commit(ctxT(t), nil))
	inj := in.client.Inject(embedtest.Fault{Method: "Range", Times: -1, Do: embedtest.Pass, Before: func() { time.Sleep(slow) },
		Match: func(_ string, msg any) bool { r, ok := msg.(*etcdserverpb.RangeRequest); return ok && r.CountOnly }})
	idempotency.ForgetCounts(in.Store)
	var wg sync.WaitGroup
	for n := range calls {
		wg.Go(func() {
			_, err := idempotency.Do(ctxT(t), in.Store, key(fmt.Sprint(n)), nil, func(context.Context, *idempotency.Attempt) (int, error) { return 0, nil })
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.NotZero(t, inj.Hits())
	require.Less(t, inj.Hits(), calls/4)
}
