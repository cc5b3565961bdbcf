package embedtest

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestLeasesEndAtOnce(t *testing.T) {
	t.Parallel()
	for _, members := range []int{1, 3} {
		c := Start(t, &Options{Members: members})
		for name, end := range map[string]func(clientv3.LeaseID) error{
			"expire": func(id clientv3.LeaseID) error { return c.ExpireLease(within(t, patience), id) },
			"revoke": func(id clientv3.LeaseID) error { return c.RevokeLease(within(t, patience), id) },
		} {
			id := grant(t, c.Client(), 3600)
			key := c.Prefix(t) + name
			put(t, c.Client(), key, "1", clientv3.WithLease(id))
			require.Equal(t, "1", value(t, c, key))
			require.NoError(t, end(id))
			require.Empty(t, value(t, c, key))
			require.ErrorIs(t, end(id), rpctypes.ErrLeaseNotFound)
		}
	}
}

func TestCompact(t *testing.T) {
	ownServersOnly(t)
	t.Parallel()
	c := Start(t, nil)
	put(t, c.Client(), "k", "1")
	old, err := c.Revision(t.Context())
	require.NoError(t, err)
	put(t, c.Client(), "k", "2")
	rev, err := c.Compact(t.Context())
	require.NoError(t, err)
	require.Equal(t, old+1, rev)
	_, err = c.Client().Get(t.Context(), "k", clientv3.WithRev(old))
	require.ErrorIs(t, err, rpctypes.ErrCompacted)
	r := next(t, c.Client().Watch(t.Context(), "k", clientv3.WithRev(old)))
	require.Equal(t, rev, r.CompactRevision)
	again, err := c.Compact(t.Context())
	require.NoError(t, err)
	require.Equal(t, rev, again)
}

func TestNoSpace(t *testing.T) {
	ownServersOnly(t)
	t.Parallel()
	c := Start(t, &Options{Members: 3})
	put(t, c.Client(), "k", "1")
	require.NoError(t, c.SetNoSpace(within(t, patience), true))
	_, err := c.Client().Put(t.Context(), "k", "2")
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	_, err = c.Client().Grant(t.Context(), 60)
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	d, err := c.Client().Delete(t.Context(), "k")
	require.NoError(t, err)
	require.EqualValues(t, 1, d.Deleted)
	require.NoError(t, c.SetNoSpace(within(t, patience), false))
	put(t, c.Client(), "k", "3")
}

func TestQuota(t *testing.T) {
	t.Parallel()
	c := Start(t, &Options{QuotaBytes: 1 << 20})
	ctx := within(t, patience)
	var err error
	for err == nil { // etcd counts what its backend has committed, which it does ten times a second
		_, err = c.Client().Put(ctx, "k", string(make([]byte, 64<<10)))
	}
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
}

func TestRaftIndexCountsWritesOnly(t *testing.T) {
	ownServersOnly(t)
	t.Parallel()
	for _, members := range []int{1, 3} {
		c := Start(t, &Options{Members: members})
		// On a busy machine, an election may add an entry. Then count again.
		term := func() uint64 { return c.members[0].running().etcd.Server.Term() }
		for done := false; !done; {
			began, before := term(), c.RaftIndex()
			for range 5 {
				put(t, c.Client(), "k", "1")
			}
			_, err := c.Client().Get(within(t, patience), "k")
			require.NoError(t, err)
			after := c.RaftIndex()
			if done = term() == began && before != 0 && after != 0; done {
				require.Equal(t, before+5, after, "%d members, cluster version %v", members, c.members[0].running().etcd.Server.ClusterVersion())
			}
		}
	}
}

func TestDump(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	p := c.Prefix(t)
	put(t, c.Client(), p+"a", "1")
	put(t, c.Client(), p+"b", "x\ny")
	dump := c.Dump(t.Context(), p)
	require.Contains(t, dump, p+`a = "1" (created `)
	require.Contains(t, dump, p+`b = "x\ny"`)
	cl := c.NewClient(t, nil)
	require.NoError(t, cl.Close())
}
