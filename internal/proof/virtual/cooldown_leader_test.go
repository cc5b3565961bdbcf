package virtual

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/schedlock"
)

// The process that ran the job has ended, and etcd has another leader, which begins each lease anew: AtLeast ends when it should
// by the clocks, a minute later at most (A463 in internal/proof/tested-failures.md). It lasted for hours more, and the next night
// was skipped.
func TestCooldownAcrossAnElection(t *testing.T) {
	t.Parallel()
	const atLeast = 2 * time.Hour // each virtual hour has hundreds of renewals
	for after, want := range map[time.Duration]schedlock.Outcome{
		atLeast - time.Minute:      schedlock.StillRunning,
		atLeast + 30*time.Second:   schedlock.StillRunning,
		atLeast + 61*time.Second:   schedlock.Ran,
		3 * time.Hour:              schedlock.Ran,
		2*atLeast + 10*time.Minute: schedlock.Ran, // also without a word of etcd's
	} {
		t.Run(after.String(), func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, on []*desk) {
				another := on[1].locker()
				begun := time.Now()
				res, err := on[0].locker().Do(t.Context(), "nightly", noWork, schedlock.Tick(begun), schedlock.AtLeast(atLeast))
				require.NoError(t, err)
				require.Equal(t, schedlock.Ran, res.Outcome)
				on[0].open(concurrency.SessionOptions{}) // another process
				time.Sleep(atLeast - 6*time.Minute)
				kvs, err := on[1].client.Get(t.Context(), root, clientv3.WithPrefix())
				require.NoError(t, err)
				elected := 0
				for _, kv := range kvs.Kvs {
					if kv.Lease != 0 && len(on[1].jobKeys("/cooldown")) == 1 && string(kv.Key) == on[1].jobKeys("/cooldown")[0] {
						_, err := on[1].client.KeepAliveOnce(t.Context(), clientv3.LeaseID(kv.Lease)) // as the new leader does
						require.NoError(t, err)
						elected++
					}
				}
				require.Equal(t, 1, elected)
				time.Sleep(time.Until(begun.Add(after)))
				res, err = another.Do(t.Context(), "nightly", noWork, schedlock.Tick(time.Now()), schedlock.AtLeast(atLeast))
				require.NoError(t, err)
				require.Equal(t, want, res.Outcome)
				if want == schedlock.StillRunning { // nor does a call with another AtLeast end it
					_, err = another.Do(t.Context(), "nightly", noWork, schedlock.Tick(time.Now().Add(time.Second)), schedlock.AtLeast(time.Hour))
					require.Error(t, err)
					require.Len(t, on[1].jobKeys("/cooldown"), 1)
				}
			})
		})
	}
}
