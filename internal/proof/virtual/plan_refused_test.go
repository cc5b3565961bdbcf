package virtual

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// A517: a session has lost its lease, and etcd refuses to store which jobs its process has. That is repeated with a growing pause,
// and stored within a minute after etcd accepts it: it was repeated once a second, for as long as etcd refused it.
func TestJobsOfAProcessAreRefused(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		d, operator := on[0], on[1].locker()
		d.begins(d.locker(), 24*time.Hour)
		live := func() bool {
			t.Helper()
			st, err := operator.Status(t.Context(), "job")
			require.NoError(t, err)
			return st.Plan.Live
		}
		time.Sleep(time.Minute)
		require.True(t, live())
		refused, allow := d.refuse(rpctypes.ErrGRPCNoSpace, func(m etcdfake.Message) bool {
			put, ok := m.Body.(*pb.PutRequest)
			return ok && strings.Contains(string(put.Key), "/jobs-of/")
		})
		d.client.Stall()
		time.Sleep(3 * ttl)
		d.client.Heal()
		time.Sleep(10 * time.Minute)
		require.False(t, live())
		require.Greater(t, refused.Load(), int64(10))
		require.LessOrEqual(t, refused.Load(), int64(40))
		allow()
		time.Sleep(time.Minute)
		require.True(t, live())
	})
}
