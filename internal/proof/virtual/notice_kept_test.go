package virtual

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// A484 in internal/proof/tested-failures.md: etcd denies a session the deletion of a notice for an hour. It is tried by one
// goroutine, however often the notice is read, and logged.
func TestNoticeThatMayNotBeDeleted(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		d, other := on[0], on[1]
		core, logs := observer.New(zap.InfoLevel)
		d.open(concurrency.SessionOptions{Logger: zap.New(core)})
		p := d.acquire()
		refused, allow := d.refuse(rpctypes.ErrGRPCPermissionDenied, func(m etcdfake.Message) bool {
			r, ok := m.Body.(*etcdserverpb.TxnRequest)
			return ok && len(r.Compare) > 0 && strings.Contains(string(r.Compare[0].Key), "/notice/")
		})
		require.NoError(t, other.semaphore(1).EvictToken(t.Context(), p.Token(), "test"))
		ended(t, p)
		time.Sleep(time.Minute)
		time.Sleep(time.Hour)
		require.Less(t, refused.Load(), int64(2*time.Hour/(10*time.Second)), "a goroutine for each list would be 240 of them")
		said := logs.FilterMessageSnippet("etcd refuses what the session needs").All()
		require.Len(t, said, 1)
		require.Equal(t, "to delete a notice that it has read", said[0].ContextMap()["refused"])
		allow()
		time.Sleep(time.Minute)
		require.Empty(t, noticesOf(d))
		require.Len(t, logs.FilterMessageSnippet("etcd allows again").All(), 1)
	})
}

// noticesOf returns the keys of notices.
func noticesOf(d *desk) (keys []string) {
	for _, key := range d.server.Keys(root) {
		if strings.Contains(key, "/notice/") {
			keys = append(keys, key)
		}
	}
	return keys
}
