package cli_test

import (
	"bytes"
	"context"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/queues"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/schedlock"
)

// Who has set a limit, when, why, and what it was before, is beside the limit, as far as that is recorded. Without a reason it is
// what the limit's record has; of the first limit of a program there is nothing.
func TestChanges(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	f.Also = []clitest.Pattern{{Of: regexp.MustCompile(`  \S+@\S+  `), As: "  ada@ci-3  "}}
	ctx := testkit.Context(t)
	s := f.Session("web-7")
	sm, err := concurrency.NewSemaphore(s, "charge", 8, nil)
	require.NoError(t, err)
	p := f.Permit(sm.Acquire(ctx))
	f.Shows(p.Token(), "4711")
	lim, err := concurrency.NewKeyedLimiter(s, "api", 5, &concurrency.KeyedLimiterOptions{Total: 9})
	require.NoError(t, err)
	f.Shows(f.Permit(lim.Key("acme").Acquire(ctx)).Token(), "4712")
	_, err = f.Locker("web-7").Do(ctx, "invoices", clitest.Nothing, schedlock.Tick(clitest.Tick(0)))
	require.NoError(t, err)
	f.Shell("changes -N test")
	f.Shell("limit -N test charge")
	f.Shell("limit -N test charge 1 --reason 'the database allows 10'")
	f.Shell("limit -N test charge")
	f.Shell("limit -N test charge -o json")
	f.Shell("show -N test charge")
	require.Zero(t, f.Run("limit", "-N", "test", "limiter/api", "4", "--reason", "load").Code)
	require.Zero(t, f.Run("limit", "-N", "test", "limiter/api", "6", "--total", "--reason", "fewer servers").Code)
	require.Zero(t, f.Run("limit", "-N", "test", "limiter/api/acme", "3", "--reason", "they asked").Code)
	f.Shell("show -N test limiter/api")
	f.Shell("show -N test limiter/api -o json")
	f.Shell("limit -N test limiter/api")
	f.Shell("limit -N test limiter/api --total")
	f.Shell("limit -N test limiter/api/acme")
	require.Zero(t, f.Run("limit", "-N", "test", "limiter/api/acme", "--clear", "--reason", "all is well").Code)
	f.Shell("limit -N test limiter/api/acme")
	require.Zero(t, f.Run("limit", "-N", "test", "rate/mail", "50", "--create", "--reason", "new").Code)
	f.Shell("limit -N test rate/mail")
	require.Zero(t, f.Run("limit", "-N", "test", "charge", "5").Code)
	f.Shell("limit -N test charge")
	require.NoError(t, sm.SetLimit(ctx, 1))
	f.Shell("limit -N test charge") // by a program, to the value of an earlier change
	require.Zero(t, f.Run("jobs", "pause", "-N", "test", "invoices", "--reason", "a migration").Code)
	f.Shell("changes -N test")
	f.Shell("changes -N test semaphore/charge -o json")
	f.Shell("changes -N test limiter/api --limit 1")
	f.Shell("changes -N test limiter/api -o json")
	f.Shell("changes -N test invoices")
	f.Shell("changes -N test none")
	f.Shell("changes -N test api") // with those of its keys, as with the kind
	f.Shell("changes -N test --limit -1")
	later, err := keyspace.New(f.Prefix, "test")
	require.NoError(t, err)
	_, err = f.Etcd.Client().Delete(ctx, later.Changes(), clientv3.WithPrefix())
	require.NoError(t, err)
	_, err = f.Etcd.Client().Put(ctx, later.Changes()+"0000000000000001-1", `{"v":9}`)
	require.NoError(t, err)
	f.Shell("changes -N test")
	f.Shell("changes -N test -o json")
	f.Golden("changes")
}

// A user that may not read the changes sees the limit, and who has set it last.
func TestLimitWithoutChanges(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx := testkit.Context(t)
	space, err := keyspace.New(f.Prefix, "test")
	require.NoError(t, err)
	_, err = f.Etcd.Client().Put(ctx, space.Queue(keyspace.Semaphore, "charge").Limit, record.Limit{Limit: 3, By: "ada", AtMS: 1}.Encode())
	require.NoError(t, err)
	denied := 0
	var errs bytes.Buffer
	call := f.Call(&errs, grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if r, ok := req.(*pb.RangeRequest); ok && string(r.GetKey()) == space.Changes() {
			denied++
			return rpctypes.ErrGRPCPermissionDenied
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}))
	require.NoError(t, clitest.Execute(ctx, queues.Limit(call), "semaphore/charge"))
	require.Contains(t, call.Std.Out.(*bytes.Buffer).String(), "set by ada ")
	require.Empty(t, errs.String())
	require.Equal(t, 1, denied)
}
