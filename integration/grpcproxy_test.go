package integration

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/doctor"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// proxied starts etcd's own gRPC proxy in front of a cluster, and returns a client of it. The proxy advertises an address,
// unless it is empty.
func proxied(t *testing.T, etcd *embedtest.Cluster, advertised string) *clientv3.Client {
	t.Helper()
	behind, err := clientv3.New(clientv3.Config{Endpoints: etcd.Endpoints(), Logger: zap.NewNop()})
	require.NoError(t, err)
	kv, kvDone := grpcproxy.NewKvProxy(behind)
	watch, watchDone := grpcproxy.NewWatchProxy(behind.Ctx(), zap.NewNop(), behind)
	cluster, clusterDone := grpcproxy.NewClusterProxy(zap.NewNop(), behind, advertised, "")
	leases, leasesDone := grpcproxy.NewLeaseProxy(behind.Ctx(), behind)
	s := grpc.NewServer()
	pb.RegisterKVServer(s, kv)
	pb.RegisterWatchServer(s, watch)
	pb.RegisterClusterServer(s, cluster)
	pb.RegisterLeaseServer(s, leases)
	pb.RegisterMaintenanceServer(s, grpcproxy.NewMaintenanceProxy(behind))
	pb.RegisterAuthServer(s, grpcproxy.NewAuthProxy(behind))
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(lis) }()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{lis.Addr().String()}, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = client.Close()
		s.Stop()
		_ = behind.Close()
		for _, done := range []<-chan struct{}{served, kvDone, watchDone, clusterDone, leasesDone} {
			<-done
		}
	})
	return client
}

// etcd's own proxy is known by doctor however it was started, and by NewSession if it advertises an address, as it does by
// default. With AllowProxy a session works through it.
func TestGRPCProxy(t *testing.T) {
	etcd := embedtest.Start(t, nil)
	ctx := testkit.Context(t)
	for _, advertised := range []string{"127.0.0.1:23790", ""} {
		client := proxied(t, etcd, advertised)
		found := doctor.Ask(ctx, client, testkit.Soon, testkit.Soon).Endpoints()
		require.Equal(t, doctor.Fail, found[0].Level, "advertised %q", advertised)
		require.Contains(t, found[0].Text, "etcd's gRPC proxy answers", "advertised %q", advertised)
		if advertised != "" {
			_, err := concurrency.NewSession(ctx, client, "test", nil)
			require.ErrorIs(t, err, errors.ErrUnsupported)
			require.True(t, strings.Contains(err.Error(), "AllowProxy"), err)
		}
		sess, err := concurrency.NewSession(ctx, client, "test", &concurrency.SessionOptions{AllowProxy: true})
		require.NoError(t, err)
		m, err := concurrency.NewMutex(sess, "x")
		require.NoError(t, err)
		require.NoError(t, m.Do(ctx, func(context.Context, *concurrency.Permit) error { return nil }))
		require.NoError(t, sess.Close(ctx))
	}
}
