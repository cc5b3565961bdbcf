package concurrency_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/proof/impostor"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// clientAt returns a client of one server.
func clientAt(t *testing.T, endpoint string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A server that only speaks etcd's API is refused at once, though ctx has no end, by a session with a lease and by one
// that only reads what is there.
func TestServerThatIsNoEtcd(t *testing.T) {
	t.Parallel()
	for _, ctx := range []context.Context{context.Background(), engine.Leaseless(context.Background())} {
		_, err := concurrency.NewSession(ctx, clientAt(t, impostor.Kine(t)), "test", nil)
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.ErrorContains(t, err, "the server is no etcd, and only speaks its API")
	}
}

// A server that grants leases as etcd does, and executes a Txn as no etcd does, is refused by its first answer.
func TestServerWithOtherTxns(t *testing.T) {
	t.Parallel()
	f := testkit.Own(t, 1)
	for name, change := range impostor.WrongTxns() {
		c := clientAt(t, impostor.Changed(t, host(f.Endpoints()[0]), change))
		_, err := concurrency.NewSession(testkit.Context(t), c, "test", testkit.Quick())
		require.ErrorIs(t, err, errors.ErrUnsupported, name)
	}
	s, err := concurrency.NewSession(testkit.Context(t), clientAt(t, impostor.Changed(t, host(f.Endpoints()[0]), nil)), "test", testkit.Quick())
	require.NoError(t, err, "a forwarder that changes nothing")
	require.NoError(t, s.Close(testkit.Context(t)))
}

// etcd's gRPC proxy is refused, with the option that allows it; a balancer is not. What was refused has left nothing.
func TestSessionBehindAProxy(t *testing.T) {
	t.Parallel()
	f := testkit.Own(t, 1)
	ctx := testkit.Context(t)
	c := clientAt(t, impostor.Proxy(t, host(f.Endpoints()[0])))
	_, err := concurrency.NewSession(ctx, c, "test", &concurrency.SessionOptions{Prefix: f.Root})
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "set AllowProxy")
	require.Eventually(t, func() bool { return len(f.Keys("session")) == 0 }, testkit.Soon, testkit.Soon/1000, "its lease is revoked")
	for _, opts := range []*concurrency.SessionOptions{{Prefix: f.Root, AllowProxy: true}, {Prefix: f.Root}} {
		if !opts.AllowProxy {
			c = clientAt(t, impostor.Forwarder(t, host(f.Endpoints()[0])))
		}
		s, err := concurrency.NewSession(ctx, c, "test", opts)
		require.NoError(t, err)
		m, err := concurrency.NewMutex(s, "x")
		require.NoError(t, err)
		p, err := m.Lock(ctx)
		require.NoError(t, err)
		require.NoError(t, p.Release(ctx))
		require.NoError(t, s.Close(ctx))
	}
}

func host(endpoint string) string { return strings.TrimPrefix(endpoint, "http://") }
