package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/examples/internal/progtest"
)

func TestMain(m *testing.M) { embedtest.Main(m) }

// The program of the README does its work on an etcd that is there, and leaves one key: the limit.
func TestFirst(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Start(t, nil)
	if etcd.External() {
		t.Skip("other tests may write to the external cluster")
	}
	require.NoError(t, run(t.Context(), etcd.Client()))
	left, err := etcd.Client().Get(t.Context(), "/etcdkit/v1/payments/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(t, err)
	require.Len(t, left.Kvs, 1, "%v", left.Kvs)
}

// F14: with no etcd there, it ends by itself and says why.
func TestWithoutEtcd(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits as long as the program does: 5 s")
	}
	progtest.WithoutEtcd(t, run)
}
