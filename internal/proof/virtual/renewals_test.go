package virtual

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/fakeetcd"
)

// T33, F33: streams of renewals break, go silent or hang, again and again, and the
// session lives on through many TTLs.
func TestRenewalsRecover(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		answer bool // it strikes answers
		fate   fakeetcd.Fate
	}{
		"broken":        {false, fakeetcd.Fate{Err: fakeetcd.ErrUnavailable, LoseRequest: true}},
		"bad token":     {false, fakeetcd.Fate{Err: rpctypes.ErrGRPCInvalidAuthToken, LoseRequest: true}},
		"answer broken": {true, fakeetcd.Fate{Err: fakeetcd.ErrUnavailable, LoseAnswer: true}},
		"answer lost":   {true, fakeetcd.Fate{LoseAnswer: true}},
		"answer stuck":  {true, fakeetcd.Fate{After: 24 * time.Hour}},
		"request stuck": {false, fakeetcd.Fate{Before: 24 * time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d := on[0]
				ends := d.traced(concurrency.SessionOptions{})
				p, lease := d.acquire(), d.session.Lease()
				// Every other message is struck, so that a stream breaks after it has worked.
				var n atomic.Int64
				d.client.Inject(func(m fakeetcd.Message) fakeetcd.Fate {
					if m.Method != "LeaseKeepAlive" || m.Answer != fault.answer || n.Add(1)%2 == 1 {
						return fakeetcd.Fate{}
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
