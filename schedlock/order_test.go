package schedlock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/schedlock"
)

// Two hundred processes have a Locker and do not run the job. They do not make its ticks late.
func TestIdleProcessesDoNotDelay(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	const idle = 200
	in := f.instance(nil, nil)
	for range idle {
		lease, err := f.Client().Grant(ctx, 300)
		require.NoError(t, err)
		_, err = f.Client().Put(ctx, fmt.Sprintf("%sclock/%016x", in.sess.NamespacePrefix(), lease.ID),
			record.Clock{Owner: "idle", AtMS: time.Now().UnixMilli()}.Encode(), clientv3.WithLease(lease.ID))
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return len(in.Clocks()) == idle }, soon, 5*time.Millisecond)
	for n := range time.Duration(12) {
		tick := time.Now().Add(n * time.Millisecond) // another one each time, however short a call is
		res, err := in.Do(ctx, "job", nothing, schedlock.Tick(tick), schedlock.LateBy(time.Second))
		require.NoError(t, err)
		require.Equal(t, schedlock.Ran, res.Outcome)
	}
}
