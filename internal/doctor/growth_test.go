package doctor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// etcd is asked whether it still has an old revision.
func TestDoctorCompaction(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Start(t, nil)
	if etcd.External() {
		t.Skip("a cluster of the user's has any number of revisions")
	}
	ctx := testkit.Context(t)
	level := func() Level { return Compaction(ctx, etcd.Client(), "/doctor/x", 10)[0].Level }
	require.Equal(t, OK, level(), "there are not so many")
	var at int64
	for range 20 {
		resp, err := etcd.Client().Put(ctx, "/doctor/x", "")
		require.NoError(t, err)
		at = resp.Header.Revision
	}
	require.Equal(t, Warn, level())
	_, err := etcd.Client().Compact(ctx, at-10)
	require.NoError(t, err)
	require.Equal(t, Warn, level(), "the revision that was compacted to is kept")
	_, err = etcd.Client().Compact(ctx, at-9)
	require.NoError(t, err)
	require.Equal(t, OK, level())
}
