package etcdfake_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/internal/proof/procs"
)

// ownEtcd returns the endpoints of a real etcd that no other test uses: a process of the
// executable that ETCD_BINARY names, as in make compat, or a member of embedtest.
func ownEtcd(t *testing.T) []string {
	t.Helper()
	endpoints, _ := ownVersion(t)
	return endpoints
}

// ownVersion is ownEtcd, with the version of the server.
func ownVersion(t *testing.T) (endpoints []string, version string) {
	t.Helper()
	binary := os.Getenv("ETCD_BINARY")
	if binary == "" {
		if os.Getenv("EMBEDTEST_ENDPOINTS") != "" {
			t.Skip("the external cluster has other users: name an executable in ETCD_BINARY")
		}
		// etcd's own settings, on which the least TTL of a lease depends.
		c := embedtest.Start(t, &embedtest.Options{HeartbeatInterval: 100 * time.Millisecond, ElectionTimeout: time.Second})
		return c.Endpoints(), ""
	}
	ctx, cancel := bounded()
	defer cancel()
	c, err := procs.Start(ctx, procs.Options{Binary: binary, Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	version, err = c.Version(ctx)
	require.NoError(t, err)
	t.Log("etcd", version)
	return c.Endpoints(), version
}

// The faults of a client do the same to a fake and to a real etcd, as far as a real one has no exact moments.
func TestFaultsOnBoth(t *testing.T) {
	t.Parallel()
	onBoth := func(name string, f func(t *testing.T, etcd *etcdfake.Server)) {
		t.Run(name+"fake", func(t *testing.T) { etcdfake.Test(t, f) })
		t.Run(name+"real", func(t *testing.T) {
			t.Parallel()
			etcdfake.Test(t, f, etcdfake.Endpoints(ownEtcd(t)...))
		})
	}
	onBoth("", faultsOnBoth)
	onBoth("stalled and then broken, ", stalledAndBroken)
}

func faultsOnBoth(t *testing.T, etcd *etcdfake.Server) {
	ctx := context.Background()
	one := etcd.NewClient()
	w := one.Watch(ctx, "b", clientv3.WithCreatedNotify())
	require.True(t, (<-w).Created)

	inject := func(f etcdfake.Fault) {
		one.Inject(func(m etcdfake.Message) etcdfake.Fault {
			if m.Method == "Txn" {
				return f
			}
			return etcdfake.Fault{}
		})
	}
	inject(etcdfake.Fault{Err: etcdfake.ErrUnavailable})
	code, _ := commit(ctx, one, "applied")
	require.Equal(t, codes.Unavailable, code)
	inject(etcdfake.Fault{Err: etcdfake.ErrUnavailable, DropRequest: true})
	code, _ = commit(ctx, one, "lost")
	require.Equal(t, codes.Unavailable, code)
	inject(etcdfake.Fault{DropResponse: true})
	code, _ = commit(after(t, 300*time.Millisecond), one, "unanswered")
	require.Equal(t, codes.DeadlineExceeded, code)
	inject(etcdfake.Fault{RequestDelay: time.Second})
	code, _ = commit(after(t, 300*time.Millisecond), one, "late")
	require.Equal(t, codes.DeadlineExceeded, code)
	require.Equal(t, []string{"applied", "unanswered"}, etcd.Keys(""))
	one.Inject(nil)
	for len(etcd.Keys("late")) == 0 {
		time.Sleep(10 * time.Millisecond)
	}

	for name, away := range map[string]func(){"cut": one.Cut, "stalled": one.Stall} {
		away()
		code, _ = commit(after(t, 300*time.Millisecond), one, name)
		require.Equal(t, codes.DeadlineExceeded, code)
		require.Empty(t, etcd.Keys(name))
		_, err := etcd.Client().Put(ctx, "b", name)
		require.NoError(t, err)
		select {
		case resp := <-w:
			t.Fatalf("%s: the watch has %v", name, resp.Events)
		case <-time.After(100 * time.Millisecond):
		}
		one.Heal()
		require.Equal(t, name, string((<-w).Events[0].Kv.Value))
	}
	one.Refuse()
	code, _ = commit(ctx, one, "refused")
	require.Equal(t, codes.Unavailable, code)
	one.Heal()

	l, err := one.Grant(ctx, 60)
	require.NoError(t, err)
	_, err = one.Put(ctx, "leased", "", clientv3.WithLease(l.ID))
	require.NoError(t, err)
	require.Contains(t, etcd.Leases(), l.ID)
	silent := etcd.NewClient()
	silent.Inject(func(m etcdfake.Message) etcdfake.Fault {
		_, answer := m.Body.(*pb.LeaseKeepAliveResponse)
		return etcdfake.Fault{DropResponse: answer}
	})
	_, err = silent.KeepAliveOnce(after(t, 300*time.Millisecond), l.ID)
	require.Error(t, err)
	_, err = one.KeepAliveOnce(ctx, l.ID)
	require.NoError(t, err)
	require.True(t, etcd.Expire(l.ID))
	require.False(t, etcd.Expire(l.ID))
	require.Empty(t, etcd.Keys("leased"))
	require.Equal(t, etcd.Revision(), etcd.Compact())
}

// What only a fake can do skips a test on a real etcd, with the reason.
func TestOnlyFake(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(*testing.T, *etcdfake.Server){
		"SetLeader":                      func(_ *testing.T, s *etcdfake.Server) { s.SetLeader(false) },
		"ShiftClock":                     func(_ *testing.T, s *etcdfake.Server) { s.ShiftClock(time.Hour) },
		"Backup":                         func(_ *testing.T, s *etcdfake.Server) { s.Backup() },
		"the recipe of the clock change": clockChange, // A806 in internal/proof/tested-failures.md
	} {
		t.Run(name, func(t *testing.T) {
			var skipped *testing.T
			t.Run("skipped", func(t *testing.T) {
				skipped = t
				do(t, etcdfake.New(t, etcdfake.Endpoints("localhost:1")))
			})
			require.True(t, skipped.Skipped())
		})
	}
}
