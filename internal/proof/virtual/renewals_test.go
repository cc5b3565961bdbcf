package virtual

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// T33, F33: streams of renewals break, go silent or hang, again and again, and the
// session lives on through many TTLs.
func TestRenewalsRecover(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		answer bool // it strikes answers
		fate   etcdfake.Fault
	}{
		"broken":        {false, etcdfake.Fault{Err: etcdfake.ErrUnavailable, DropRequest: true}},
		"bad token":     {false, etcdfake.Fault{Err: rpctypes.ErrGRPCInvalidAuthToken, DropRequest: true}},
		"answer broken": {true, etcdfake.Fault{Err: etcdfake.ErrUnavailable, DropResponse: true}},
		"answer lost":   {true, etcdfake.Fault{DropResponse: true}},
		"answer stuck":  {true, etcdfake.Fault{ResponseDelay: 24 * time.Hour}},
		"request stuck": {false, etcdfake.Fault{RequestDelay: 24 * time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d := on[0]
				ends := d.traced(concurrency.SessionOptions{})
				p, lease := d.acquire(), d.session.Lease()
				// Every other message is struck, so that a stream breaks after it has worked.
				var n atomic.Int64
				d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
					if m.Method != "LeaseKeepAlive" || m.Response != fault.answer || n.Add(1)%2 == 1 {
						return etcdfake.Fault{}
					}
					return fault.fate
				})
				select {
				case <-p.Context().Done():
					require.NoError(t, p.Err())
				case <-time.After(20 * ttl):
				}
				require.Greater(t, n.Load(), int64(2*20), "every other one was struck")
				require.Zero(t, ends.lost.Load())
				require.Equal(t, lease, d.session.Lease())
				require.NoError(t, p.Release(t.Context()))
			})
		})
	}
}
