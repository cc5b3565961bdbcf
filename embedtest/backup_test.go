package embedtest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// After a restore, later keys and leases are lost, and their revisions are assigned again.
func TestRestore(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts clusters and restores them: 5.5 s")
	}
	ownServersOnly(t)
	t.Parallel()
	for _, members := range []int{1, 3} {
		c := Start(t, &Options{Members: members})
		ctx := within(t, patience)
		put := func(value string) int64 {
			resp, err := c.Client().Put(ctx, "a", value)
			require.NoError(t, err)
			return resp.Header.Revision
		}
		value := func() string {
			resp, err := c.Client().Get(ctx, "a")
			require.NoError(t, err)
			return string(resp.Kvs[0].Value)
		}
		put("before")
		b, err := c.Backup(ctx)
		require.NoError(t, err)
		require.Equal(t, "before", value())
		for range 2 {
			after := put("after")
			lease, err := c.Client().Grant(ctx, 60)
			require.NoError(t, err)
			require.NoError(t, c.Restore(ctx, b))
			require.Equal(t, "before", value())
			require.LessOrEqual(t, put("again"), after, "its revision is given out once more")
			ttl, err := c.Client().TimeToLive(ctx, lease.ID)
			require.NoError(t, err)
			require.EqualValues(t, -1, ttl.TTL)
		}
	}
	require.Error(t, Start(t, nil).Restore(within(t, patience), nil))
}
