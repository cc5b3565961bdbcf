package virtual

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/idempotency"
)

// A213: the record of an outcome is not written until another lease is assigned, and its parts are put on that one. A late
// copy of a part does not move it to the lease before, which ends before the outcome may.
func TestLatePartOfTheSameCommit(t *testing.T) {
	const late = 6 * time.Second
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		s := d.storeOf(idempotency.Options{Retain: time.Minute})
		at := started(t, s, order("1"))
		begun, copies, again := time.Now(), 0, 0
		var arrived time.Time
		d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
			r, ok := m.Body.(*pb.TxnRequest)
			if !ok || len(r.Success) == 0 {
				return etcdfake.Fault{}
			}
			put := r.Success[0].GetRequestPut()
			switch {
			case strings.Contains(string(put.GetKey()), "/part/") && copies == 0:
				copies++
				arrived = time.Now().Add(late)
				return etcdfake.Fault{Duplicate: late}
			case strings.Contains(string(put.GetKey()), "/part/") && time.Now().Before(arrived):
				again++
			case bytes.Contains(put.GetValue(), []byte(`"done"`)) && time.Since(begun) < late/2+time.Second:
				return etcdfake.Fault{DropRequest: true, Err: etcdfake.ErrUnavailable}
			case bytes.Contains(put.GetValue(), []byte(`"done"`)):
				return etcdfake.Fault{RequestDelay: time.Until(arrived) + time.Second}
			}
			return etcdfake.Fault{}
		})
		short, cancel := context.WithTimeout(t.Context(), late/2+time.Second)
		defer cancel()
		require.ErrorIs(t, at.Commit(short, bytes.Repeat([]byte("a"), 300<<10)), idempotency.ErrNotRecorded)
		require.Eventually(t, func() bool { return s.Stats().Pending == 0 }, 10*late, time.Second)
		require.Equal(t, 1, again, "the part is put on the other lease, and then the copy arrives")
		leases := map[int64]bool{}
		for _, key := range d.server.Keys("") {
			if strings.Contains(key, "/record/") || strings.Contains(key, "/part/") {
				resp, err := d.client.Get(t.Context(), key)
				require.NoError(t, err)
				leases[resp.Kvs[0].Lease] = true
			}
		}
		require.Len(t, leases, 1)
	})
}
