package virtual

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A29: two hundred processes have a Locker and do not run the job. They delay its ticks by 50 ms at most, all
// together.
func TestIdleProcessesDoNotDelay(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		const idle, most = 200, 50 * time.Millisecond
		d := on[0]
		l, ctx := d.locker(), within(t, time.Hour)
		for range idle {
			lease, err := d.client.Grant(ctx, 300)
			require.NoError(t, err)
			_, err = d.client.Put(ctx, fmt.Sprintf("%sclock/%016x", d.session.NamespacePrefix(), lease.ID),
				record.Clock{Owner: "idle", AtMS: time.Now().UnixMilli()}.Encode(), clientv3.WithLease(lease.ID))
			require.NoError(t, err)
		}
		synctest.Wait()
		require.Len(t, l.Clocks(), idle)
		_, err := l.Do(ctx, "job", noWork) // it stores what all ticks of the job have in common
		require.NoError(t, err)
		delayed := false
		for range 12 {
			time.Sleep(time.Millisecond) // another tick each time
			tick := time.Now()
			res, err := l.Do(ctx, "job", noWork, schedlock.Tick(tick), schedlock.LateBy(time.Minute))
			require.NoError(t, err)
			require.Equal(t, schedlock.Ran, res.Outcome)
			took := time.Since(tick)
			require.LessOrEqual(t, took, most)
			delayed = delayed || took > 0
		}
		require.True(t, delayed, "the order counts")
	})
}
