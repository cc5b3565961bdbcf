package virtual

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// A373: the keys of 80 requests that wait are deleted by hand, and etcd denies the reads that ask for their notices. Each call
// returns the denial a TTL later, all at about the same time. Without a deadline they repeated the reads for ever, and each kept
// the others from asking for half a second.
func TestNoticesDeniedForLong(t *testing.T) {
	t.Parallel()
	const waiters = 80
	bubble(t, 2, func(t *testing.T, on []*desk) {
		d, other := on[0], on[1]
		held := other.acquire()
		type end struct {
			at  time.Time
			err error
		}
		ends := make(chan end, waiters)
		for range waiters {
			go func() {
				_, err := d.semaphore(1).Acquire(t.Context())
				ends <- end{time.Now(), err}
			}()
		}
		time.Sleep(time.Second)
		d.refuse(rpctypes.ErrGRPCPermissionDenied, func(m etcdfake.Message) bool {
			r, ok := m.Body.(*etcdserverpb.RangeRequest)
			return ok && len(r.RangeEnd) == 0 && strings.Contains(string(r.Key), "/notice/")
		})
		resp, err := other.client.Get(t.Context(), root+gate+"/queue/", clientv3.WithPrefix())
		require.NoError(t, err)
		require.Len(t, resp.Kvs, waiters+1)
		deleted := time.Now()
		for _, kv := range resp.Kvs {
			if clientv3.LeaseID(kv.Lease) == d.session.Lease() {
				_, err = other.client.Delete(t.Context(), string(kv.Key))
				require.NoError(t, err)
			}
		}
		for range waiters {
			select {
			case e := <-ends:
				require.ErrorIs(t, e.err, rpctypes.ErrPermissionDenied)
				require.InDelta(t, ttl.Seconds(), e.at.Sub(deleted).Seconds(), 0.2)
			case <-time.After(2 * ttl):
				t.Fatal("a call still waits")
			}
		}
		require.NoError(t, held.Release(t.Context()))
	})
}
