package concurrency_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
)

// A769: where clusters differ, the error has the key, the label, both IDs, and what to do after a restore. A restore without the
// cluster's token changes its ID; the error then had two lists and no remedy.
func TestClustersDiffer(t *testing.T) {
	t.Parallel()
	ctx, key := t.Context(), "/payments/clusters"
	a, b := embedtest.Start(t, nil).Client(), embedtest.Start(t, nil).Client()
	require.NoError(t, agree(ctx, map[string]*clientv3.Client{"a": a}))
	_, err := a.Delete(ctx, key)
	require.NoError(t, err)
	clients := map[string]*clientv3.Client{"a": a, "b": b}
	is, err := b.Put(ctx, "/x", "")
	require.NoError(t, err)
	of, err := a.Get(ctx, key)
	require.NoError(t, err)
	_, err = a.Put(ctx, key, fmt.Sprintf("a=%x,b=17", of.Header.ClusterId)) // as before a restore of b
	require.NoError(t, err)
	err = agree(ctx, clients)
	require.EqualError(t, err, fmt.Sprintf("agree on clusters by the key %s of cluster a: label b has the cluster ID \"17\" there and %q in this process (after a restore delete this key on all clusters)",
		key, fmt.Sprintf("%x", is.Header.ClusterId)))
	for _, c := range clients {
		_, err := c.Delete(ctx, key)
		require.NoError(t, err)
	}
	require.NoError(t, agree(ctx, clients))
}
