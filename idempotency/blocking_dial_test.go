package idempotency_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// A750: a store asks each member how full it is. By a client with grpc.WithBlock and without DialTimeout, a member that was down
// kept Close for ever.
func TestCloseByAClientThatBlocks(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, nil)
	cl, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{"http://127.0.0.1:1", c.Endpoints()[0]},          // nothing listens at the first, which is asked first
		DialOptions: []grpc.DialOption{grpc.WithBlock()}, Logger: zap.NewNop(), //nolint:staticcheck // what a program may set
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = cl.Close() })
	sess, err := concurrency.NewSession(ctxT(t), cl, "payments", &concurrency.SessionOptions{Prefix: c.Prefix(t)})
	require.NoError(t, err)
	store, err := idempotency.NewStore(sess, "payments", nil)
	require.NoError(t, err)
	_, err = idempotency.Do(ctxT(t), store, key("1"), "payload", func(context.Context, *idempotency.Attempt) (int, error) { return 1, nil })
	require.NoError(t, err)
	closed := make(chan error, 1)
	go func() { closed <- sess.Close(ctxT(t)) }()
	select {
	case err := <-closed:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("Close does not return while the store asks a member that is down")
	}
}
