package schedlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A388: the answer to a claim is lost, and the session with it, so its run does not start. The lease of its cooldown counted
// as unused, and the process renewed it for its next claims: no attempt began while it did, in the whole fleet.
func TestCooldownOfAClaimThatIsLostWithItsSession(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx, cancel := context.WithTimeout(ctxT(t), soon)
	defer cancel()
	a := f.instance(brisk(), nil)
	var expired error
	lost := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Skip: 1, Do: embedtest.DropResponse, After: func() {
		expired = f.ExpireLease(ctx, a.sess.Lease())
	}})
	var starts atomic.Int64
	res, err := a.Do(ctx, "job", counted(&starts), schedlock.Tick(tick(1)), schedlock.Retries(1), schedlock.AtMost(time.Hour), schedlock.AtLeast(time.Hour))
	require.NoError(t, err)
	require.NoError(t, expired)
	require.Equal(t, 1, lost.Hits())
	require.Equal(t, schedlock.Ran, res.Outcome)
	require.Equal(t, 1, res.Attempt, "the claim that was lost is taken back")
	require.EqualValues(t, 1, starts.Load())
}
