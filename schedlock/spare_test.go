package schedlock_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A388: the answer to a claim is lost, and the session with it, so its run does not start. The lease of its cooldown counted
// as unused: the process renewed it for its next claims, and none of them started in this time, in the whole fleet.
func TestCooldownOfAClaimThatIsLostWithItsSession(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a := f.instance(nil, nil)
	_, err := a.Do(ctx, "job", nothing, schedlock.Tick(tick(0)))
	require.NoError(t, err)
	var expired error
	lost := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Do: embedtest.DropResponse, After: func() {
		expired = f.ExpireLease(ctx, a.sess.Lease())
	}})
	var starts atomic.Int64
	res, err := a.Do(ctx, "job", counted(&starts), schedlock.Tick(tick(1)), schedlock.Retries(1), schedlock.AtMost(50*time.Second), schedlock.AtLeast(50*time.Second))
	require.NoError(t, err)
	require.NoError(t, expired)
	require.Equal(t, 1, lost.Hits())
	require.Equal(t, schedlock.Ran, res.Outcome)
	require.Equal(t, 2, res.Attempt)
	require.EqualValues(t, 1, starts.Load())
}
