package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/embedtest"
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
	t.Parallel()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1"}, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer client.Close()
	err = run(t.Context(), client)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "127.0.0.1:1")
}
