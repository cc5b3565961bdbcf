package virtual

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// A lease that is granted so late that trust in it has ended is granted anew: an outage of any
// length costs one session.
func TestOneOutageIsOneLoss(t *testing.T) {
	for name, away := range map[string]func(*etcdfake.Client){"cut": (*etcdfake.Client).Refuse, "stall": (*etcdfake.Client).Stall} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d := on[0]
				_ = d.session.Close(t.Context())
				var lost, renewed atomic.Int32
				var err error
				d.session, err = concurrency.NewSession(t.Context(), d.client.Client, "test", &concurrency.SessionOptions{Prefix: prefix, TTL: ttl, Margin: margin,
					Hooks: testkit.Trace{
						SessionLost:    func(clientv3.LeaseID, error) { lost.Add(1) },
						SessionRenewed: func(clientv3.LeaseID) { renewed.Add(1) },
					}.Hooks()})
				require.NoError(t, err)
				d.begun = time.Now()
				time.Sleep(time.Second)
				away(d.client)
				time.Sleep(4 * ttl)
				d.client.Heal()
				time.Sleep(4 * ttl)
				require.Equal(t, []int32{1, 1}, []int32{lost.Load(), renewed.Load()})
			})
		})
	}
}
