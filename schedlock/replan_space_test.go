package schedlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A511: a claim is removed while etcd is out of space, so that the plan before it cannot be put back. Its own plan is removed: it
// said that the tick was started, and no page and no call that catches up found that it was not.
func TestPlanOfAClaimThatIsRemovedWithoutSpace(t *testing.T) {
	t.Parallel()
	f := own(t)
	ctx := ctxT(t)
	saturday := friday.AddDate(0, 0, 1)
	planned := schedlock.Planned(schedlock.Crontab{Text: "0 9 * * *", Zone: time.UTC, Schedule: nine{}}, time.Hour)
	for name, fault := range map[string]embedtest.Fault{
		"applied-and-refused":   {Do: embedtest.DropResponse, Err: rpctypes.ErrGRPCNoSpace},
		"answered-and-too-late": {Do: embedtest.Pass},
	} {
		h := clock(friday.Add(time.Minute))
		operator, in := f.instance(nil, h.options()), f.instance(nil, h.options())
		_, err := in.Do(ctx, name, nothing, schedlock.Tick(friday), planned)
		require.NoError(t, err)
		h.set(saturday.Add(time.Minute))
		fault.Method, fault.Match, fault.After = "Txn", isClaim, func() {
			assert.NoError(t, f.SetNoSpace(ctx, true))
			h.set(saturday.Add(2 * time.Hour))
		}
		in.client.Inject(fault)
		res, _ := in.Do(ctx, name, nothing, schedlock.Tick(saturday), schedlock.LateBy(time.Hour), planned)
		require.Zero(t, res.Token)
		require.Eventually(t, func() bool {
			st, err := operator.Status(ctx, name)
			return err == nil && st.Plan == nil && !st.Running && st.Last.Tick.Equal(friday)
		}, soon, 20*time.Millisecond, name)
		require.NoError(t, f.SetNoSpace(ctx, false))
		res, err = in.Do(ctx, name, nothing, schedlock.Tick(saturday), planned)
		require.NoError(t, err)
		require.Equal(t, schedlock.Ran, res.Outcome)
		st, err := operator.Status(ctx, name)
		require.NoError(t, err)
		require.True(t, st.Plan.Due.Equal(saturday.AddDate(0, 0, 1)), "the next claim stores it")
	}
}
