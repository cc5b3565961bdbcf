package etcdfake_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// onBoth runs f on a fake and on a real etcd.
func onBoth(t *testing.T, f func(t *testing.T, etcd *etcdfake.Server), opts ...etcdfake.Option) {
	t.Helper()
	t.Run("fake", func(t *testing.T) { etcdfake.Test(t, f, opts...) })
	t.Run("real", func(t *testing.T) { etcdfake.Test(t, f, etcdfake.Endpoints(ownEtcd(t)...)) })
}

// An expired lease is not renewed: a renewal that comes before the server has ended it is
// answered when it has, and its keys are gone by then. In a fake of ExpireEvery such a renewal
// gave the lease its whole time again (A450 in internal/proof/tested-failures.md).
func TestConformanceOfExpiry(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, etcd *etcdfake.Server) {
		ctx := after(t, time.Minute)
		one := etcd.NewClient()
		time.Sleep(100 * time.Millisecond) // between two looks of the fake
		l, err := one.Grant(ctx, 2)
		require.NoError(t, err)
		_, err = one.Put(ctx, "leased", "", clientv3.WithLease(l.ID))
		require.NoError(t, err)
		time.Sleep(time.Duration(l.TTL)*time.Second + 50*time.Millisecond)
		_, err = one.KeepAliveOnce(ctx, l.ID)
		require.ErrorIs(t, err, rpctypes.ErrLeaseNotFound)
		require.Empty(t, etcd.Keys("leased"))
	}, etcdfake.ExpireEvery(500*time.Millisecond))
}

// If the leader is lost while the renewal of an expired lease waits, the next leader gives the
// lease its whole time, and renews it.
func TestRenewalWaitsForTheNextLeader(t *testing.T) {
	t.Parallel()
	etcdfake.Test(t, func(t *testing.T, etcd *etcdfake.Server) {
		ctx := context.Background()
		one := etcd.NewClient()
		time.Sleep(100 * time.Millisecond)
		l, err := one.Grant(ctx, 2)
		require.NoError(t, err)
		time.AfterFunc(2200*time.Millisecond, func() { etcd.SetLeader(false) })
		time.AfterFunc(5*time.Second, func() { etcd.SetLeader(true) })
		time.Sleep(2100 * time.Millisecond)
		resp, err := one.KeepAliveOnce(ctx, l.ID)
		require.NoError(t, err)
		require.Equal(t, int64(2), resp.TTL)
		require.Zero(t, etcd.InFlight())
	}, etcdfake.ExpireEvery(500*time.Millisecond))
}

// The first notification of a watch's progress comes with the first look of its stream: a fake
// sent it with the second one (A452).
func TestConformanceOfProgress(t *testing.T) {
	t.Parallel()
	f := func(every time.Duration) func(*testing.T, *etcdfake.Server) {
		return func(t *testing.T, etcd *etcdfake.Server) {
			ctx := after(t, time.Hour)
			one := etcd.NewClient()
			begun := time.Now()
			resp := <-one.Watch(ctx, "a", clientv3.WithProgressNotify())
			require.True(t, resp.IsProgressNotify())
			require.GreaterOrEqual(t, time.Since(begun), every)
			require.Less(t, time.Since(begun), 2*every)
		}
	}
	t.Run("fake", func(t *testing.T) { etcdfake.Test(t, f(10*time.Minute)) })
	t.Run("real", func(t *testing.T) {
		const every = 2 * time.Second
		c := embedtest.Start(t, &embedtest.Options{Configure: func(cfg *embed.Config) { cfg.WatchProgressNotifyInterval = every }})
		if c.External() {
			t.Skip("an external cluster has its own interval")
		}
		etcdfake.Test(t, f(every), etcdfake.Endpoints(c.Endpoints()...))
	})
}

// Without a leader a member answers what it can alone: serializable reads, also in
// transactions, and watches that do not require a leader. In a fake they waited 7 seconds for
// one, and failed (A453).
func TestConformanceWithoutLeader(t *testing.T) {
	t.Parallel()
	f := func(lose func()) func(*testing.T, *etcdfake.Server) {
		return func(t *testing.T, etcd *etcdfake.Server) {
			ctx := after(t, time.Minute)
			one := etcd.NewClient()
			_, err := one.Put(ctx, "a", "1")
			require.NoError(t, err)
			if lose == nil {
				etcd.SetLeader(false)
			} else {
				lose()
			}
			serializable := clientv3.OpGet("a", clientv3.WithSerializable())
			for err == nil {
				_, err = one.Do(clientv3.WithRequireLeader(ctx), serializable)
			}
			require.ErrorIs(t, err, rpctypes.ErrNoLeader)
			begun := time.Now()
			resp, err := one.Do(ctx, serializable)
			require.NoError(t, err)
			require.Equal(t, "1", string(resp.Get().Kvs[0].Value))
			both, err := one.Txn(ctx).Then(serializable).Commit()
			require.NoError(t, err)
			require.True(t, both.Succeeded)
			_, err = one.Leases(ctx)
			require.NoError(t, err)
			w := one.Watch(ctx, "a", clientv3.WithCreatedNotify(), clientv3.WithRev(1))
			require.True(t, (<-w).Created)
			require.Equal(t, "1", string((<-w).Events[0].Kv.Value))
			if lose == nil {
				require.Zero(t, time.Since(begun))
			}
		}
	}
	t.Run("fake", func(t *testing.T) { etcdfake.Test(t, f(nil)) })
	t.Run("real", func(t *testing.T) {
		c := embedtest.Start(t, &embedtest.Options{Members: 3})
		if c.External() {
			t.Skip("the external cluster has other users")
		}
		etcdfake.Test(t, f(func() {
			require.NoError(t, c.Crash(1))
			require.NoError(t, c.Crash(2))
		}), etcdfake.Endpoints(c.Endpoints()[0]))
	})
}

// What the server has sent before a stream ends is received: a fake ended the stream at once
// when its client had sent all (A454).
func TestConformanceOfEndedStreams(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, etcd *etcdfake.Server) {
		ctx := after(t, time.Minute)
		one := etcd.NewClient()
		l, err := one.Grant(ctx, 60)
		require.NoError(t, err)
		stream, err := pb.NewLeaseClient(one.ActiveConnection()).LeaseKeepAlive(ctx)
		require.NoError(t, err)
		for range 2 {
			require.NoError(t, stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(l.ID)}))
		}
		require.NoError(t, stream.CloseSend())
		for range 2 {
			resp, err := stream.Recv()
			require.NoError(t, err)
			require.Equal(t, int64(60), resp.TTL)
		}
		_, err = stream.Recv()
		require.ErrorIs(t, err, io.EOF)
	})
}

// etcd's client does not send a message of more than 2 MiB: a fake took any (A455).
func TestConformanceOfSentSize(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, etcd *etcdfake.Server) {
		_, err := etcd.NewClient().Put(after(t, time.Minute), "a", string(large(1<<19)))
		require.ErrorContains(t, err, "trying to send message larger than max (2097160 vs. 2097152)")
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
	})
}

// Every Server is a cluster of its own: its ClusterId says which one it is (A455).
func TestClusterIDs(t *testing.T) {
	t.Parallel()
	seen := map[uint64]bool{}
	for range 3 {
		s := etcdfake.New(t)
		for range 2 {
			resp, err := s.Client().Get(context.Background(), "a")
			require.NoError(t, err)
			seen[resp.Header.ClusterId] = true
			put, err := s.Client().Put(context.Background(), "a", "")
			require.NoError(t, err)
			require.Equal(t, resp.Header.ClusterId, put.Header.ClusterId)
		}
	}
	require.Len(t, seen, 3)
}
