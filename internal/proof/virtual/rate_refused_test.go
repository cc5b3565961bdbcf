package virtual

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// A483 in internal/proof/tested-failures.md: no rate is stored, and etcd refuses to store one. The process tries twice a
// second, as for all that it lacks, and not as fast as etcd answers.
func TestRateThatCannotBeStored(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"no space": rpctypes.ErrGRPCNoSpace, "permission": rpctypes.ErrGRPCPermissionDenied} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d := on[0]
				fault := etcdfake.Fault{DropRequest: true, Err: err, RequestDelay: time.Millisecond}
				var refused atomic.Int64
				d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
					if r, ok := m.Body.(*etcdserverpb.TxnRequest); ok && len(r.Success) > 0 && r.Success[0].GetRequestPut() != nil {
						refused.Add(1)
						return fault
					}
					return etcdfake.Fault{}
				})
				l := d.rate(10, 10)
				require.Error(t, l.Allow())
				time.Sleep(10 * time.Second)
				require.LessOrEqual(t, refused.Load(), int64(2*10+2))
				require.GreaterOrEqual(t, refused.Load(), int64(10))
				d.client.Inject(nil)
				begun := time.Now()
				require.NoError(t, l.Wait(within(t, time.Minute)))
				require.Less(t, time.Since(begun), 2*time.Second)
			})
		})
	}
}
