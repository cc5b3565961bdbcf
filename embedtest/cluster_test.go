package embedtest

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestStartAnswersAtOnce(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		begin := time.Now()
		c := StartCluster(t, n, nil)
		t.Logf("%d members: %v", n, time.Since(begin))
		_, err := c.Client().Get(t.Context(), "x")
		require.NoError(t, err)
	}
}

// A watch that is open must not hold Close up; etcd alone waits 5 s for it.
func TestCloseWithOpenWatches(t *testing.T) {
	for _, n := range []int{1, 3} {
		c, err := New(t.Context(), &Options{Members: n})
		require.NoError(t, err)
		cl, err := c.Dial(t.Context())
		require.NoError(t, err)
		outside, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), Logger: c.log})
		require.NoError(t, err)
		for _, w := range []*clientv3.Client{c.Client(), cl.Client, outside} {
			r := <-w.Watch(context.Background(), "w", clientv3.WithCreatedNotify())
			require.True(t, r.Created)
		}
		dir := c.dir
		begin := time.Now()
		require.NoError(t, c.Close())
		took := time.Since(begin)
		t.Logf("%d members closed in %v", n, took)
		require.Less(t, took, 2*time.Second)
		require.NoDirExists(t, dir)
		require.NoError(t, c.Close(), "a second Close")
		require.NoError(t, outside.Close())
	}
}

func TestDataDirIsPrivateAndTemporary(t *testing.T) {
	c, err := New(t.Context(), nil)
	require.NoError(t, err)
	st, err := os.Stat(c.members[0].dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), st.Mode().Perm())
	dir := c.dir
	require.NoError(t, c.Close())
	require.NoDirExists(t, dir)
}
