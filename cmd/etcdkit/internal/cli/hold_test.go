package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/permits"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/internal/record"
)

// A permit of hold stays when the command has ended, is found by its ID, and leaves nothing when it is
// released.
func TestHold(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	f.Also = []clitest.Pattern{{Of: regexp.MustCompile(` --prefix \S+`), As: ""}} // that of the test, where users have the default
	f.Shell("hold -N test production --id deploy-42 --for 30m")
	st := f.Status("production")
	require.Len(t, st.Holders, 1)
	require.Equal(t, "deploy-42", st.Holders[0].ID)
	f.Shows(st.Holders[0].Token, "4711")
	space, err := keyspace.New(f.Prefix, "test")
	require.NoError(t, err)
	stored, err := f.Etcd.Client().Get(testkit.Context(t), space.Queue(keyspace.Mutex, "production").Requests, clientv3.WithPrefix())
	require.NoError(t, err)
	request, ok := record.DecodeRequest(stored.Kvs[0].Value)
	require.True(t, ok)
	require.Equal(t, time.Hour, request.MaxHold().Truncate(time.Minute), "a permit with a known end is none without a MaxHold; a new leader of etcd may begin its lease anew")
	f.Shell("show -N test production")
	f.Shell("hold -N test production --id deploy-42 --for 30m --no-wait")
	f.Shell("hold -N test production --id deploy-43 --for 30m --no-wait")
	waited := f.Run("hold", "-N", "test", "production", "--id", "deploy-43", "--for", "30m", "--wait", "300ms")
	require.Contains(t, waited.Err, "1 of 1 in use, 0 waiting; --wait 300ms has passed\n")
	f.Shell("release -N test production --id deploy-43")
	f.Shell("release -N test production --id deploy-42 --token 4712") // of another attempt
	f.Shell("evict -N test mutex/production 4711 --yes")              // which has no process
	require.Len(t, f.Status("production").Holders, 1)
	f.Shell("release -N test production --id deploy-42 --token 4711")
	f.Shell("release -N test mutex/production --id deploy-42")
	f.Shell("release -N test limiter/api --id deploy-42")
	require.Empty(t, testkit.Keys(t, f.Etcd, f.Prefix, "mutex"), "no request is left")
	leases, err := f.Etcd.Client().Leases(testkit.Context(t))
	require.NoError(t, err)
	for _, l := range leases.Leases {
		require.NotEqual(t, st.Holders[0].Lease, l.ID, "its lease is revoked")
	}
	r := f.Shell("hold -N test staging --limit 3 --id build-7 --for 10m -o json")
	var held struct{ Token string }
	require.NoError(t, json.Unmarshal([]byte(r.Out), &held))
	f.Shows(held.Token, "4720")
	f.Shell("hold -N test staging --limit 4 --id build-8 --for 10m")
	f.Shell("release -N test staging --id build-7 -o json")
	f.Shell("hold -N test production --for 30m")
	f.Shell("hold -N test production --id x --for 1s")
	f.Shell("hold -N test production --id x --for 30m --lock --limit 3")
	f.Shell("hold -N test production --id x --for 30m --leader")
	f.Golden("hold")
}

// A permit of hold that is taken by force leaves no lease, which would show its session as live.
func TestEvictHold(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	require.Zero(t, f.Run("hold", "-N", "test", "x", "--id", "a", "--for", "30m").Code)
	held := f.Status("x").Holders[0]
	r := f.Run("evict", "-N", "test", "x", strconv.FormatInt(held.Token, 10), "--yes", "--force")
	require.Zero(t, r.Code, r.Err)
	require.Empty(t, testkit.Keys(t, f.Etcd, f.Prefix, "mutex"))
	left, err := f.Etcd.Client().TimeToLive(testkit.Context(t), held.Lease)
	require.NoError(t, err)
	require.Negative(t, left.TTL)
}

// A permit that is granted as etcd goes away may last as long as --for: hold says so.
func TestHoldThroughAnOutage(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	var gone atomic.Bool
	var errs bytes.Buffer
	unavailable := status.Error(codes.Unavailable, "for a test")
	a := f.Call(&errs,
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if gone.Load() {
				return unavailable
			}
			return invoke(ctx, method, req, reply, cc, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			if strings.HasSuffix(method, "/LeaseKeepAlive") && (gone.Load() || len(testkit.Keys(t, f.Etcd, f.Prefix, "mutex/")) > 0) {
				gone.Store(true)
				time.Sleep(10 * time.Millisecond) // etcd's client opens it again at once
				return nil, unavailable
			}
			return open(ctx, desc, cc, method, opts...)
		}))
	require.Error(t, clitest.Execute(testkit.Context(t), permits.Hold(a), "x", "--id", "a", "--for", "30m"))
	a.Close() // its messages are written
	require.Contains(t, errs.String(), "it may hold a permit now or later, for 30m0s. This ends it: etcdkit release -N test --prefix "+f.Prefix+" mutex/x --id a\n")
	require.Zero(t, f.Run("release", "-N", "test", "mutex/x", "--id", "a").Code)
}

// An ID may be no text. Then two may be shown alike, and each is released by its own.
func TestIDsThatAreNoText(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	sm, err := concurrency.NewSemaphore(f.Session("etcdkit run ada"), "x", 3, nil)
	require.NoError(t, err)
	f.Permit(sm.Acquire(testkit.Context(t), concurrency.ID("job-\xfd")))
	for _, id := range []string{"job-\xff", "job-\xfe"} {
		r := f.Run("hold", "-N", "test", "x", "--limit", "3", "--id", id, "--for", "10m")
		require.Zero(t, r.Code, r.Err)
	}
	st, err := sm.Status(testkit.Context(t))
	require.NoError(t, err)
	r := f.Run("evict", "-N", "test", "semaphore/x", strconv.FormatInt(st.Holders[1].Token, 10), "--yes")
	require.Contains(t, r.Err, "etcdkit release -N test --prefix "+f.Prefix+" semaphore/x --id, with the ID that hold was given")
	for _, id := range []string{"job-\xfe", "job-\xff"} {
		require.Zero(t, f.Run("release", "-N", "test", "x", "--id", id).Code, "%q", id)
		require.Equal(t, 1, f.Run("release", "-N", "test", "x", "--id", id).Code, "%q", id)
	}
	r = f.Run("release", "-N", "test", "x", "--id", "job-\xfd")
	require.Equal(t, 1, r.Code)
	require.Contains(t, r.Err, "is of a command that may still work")
}

// A permit that no step releases ends by itself, and the next one is admitted.
func TestHoldEnds(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	begun := time.Now()
	r := f.Run("hold", "-N", "test", "x", "--id", "a", "--for", "5s")
	require.Zero(t, r.Code, r.Err)
	r = f.Run("hold", "-N", "test", "x", "--id", "b", "--for", "10m", "--wait", "1m")
	require.Zero(t, r.Code, r.Err)
	require.Regexp(t, `waiting for mutex/x: 1st in the queue, behind etcdkit hold by .* \(\w+, until [0-9:]+ UTC at the latest if it does not renew\)`, r.Err, "in the first report")
	require.NotContains(t, r.Err, "\x1b")
	st := f.Status("x")
	require.Len(t, st.Holders, 1, "%s%s%+v", r.Out, r.Err, st)
	require.Equal(t, "b", st.Holders[0].ID)
	granted := begun.Add(5 * time.Second) // or later
	require.Greater(t, st.Holders[0].ExpiresBy, granted.Add(10*time.Minute-2*time.Second), "it counts from the grant")
}

// A wait that is interrupted leaves no request.
func TestHoldIsWithdrawn(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	r := f.Run("hold", "-N", "test", "x", "--id", "a", "--for", "30m")
	require.Zero(t, r.Code, r.Err)
	ctx, cancel := context.WithCancelCause(testkit.Context(t))
	defer cancel(nil)
	errs := &clitest.Signalled{At: "waiting for mutex/x", Do: func() { cancel(exit.Interrupted{Signal: syscall.SIGINT}) }}
	args := []string{"hold", "x", "--id", "b", "--for", "30m", "-N", "test", "--endpoints", strings.Join(f.Etcd.Endpoints(), ","), "--prefix", f.Prefix}
	require.Equal(t, 130, cli.Execute(ctx, args, verb.Streams{In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: errs}))
	st := f.Status("x")
	require.Empty(t, st.Waiters)
	require.Equal(t, "a", st.Holders[0].ID)
}

// A permit of which the caller learns no token is not kept.
func TestHoldThatCannotBePrinted(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	var errs bytes.Buffer
	args := []string{"hold", "x", "--id", "a", "--for", "30m", "-N", "test", "--endpoints", strings.Join(f.Etcd.Endpoints(), ","), "--prefix", f.Prefix}
	require.Equal(t, exit.Failed, cli.Execute(testkit.Context(t), args, verb.Streams{In: strings.NewReader(""), Out: clitest.Full{}, Err: &errs}))
	require.Contains(t, errs.String(), "its token cannot be printed: no space left on device; it is released")
	require.Empty(t, f.Status("x").Holders)
}

// A request that is removed while it waits has never had a permit: its exit code is not that of a lost one.
func TestHoldIsRemovedWhileItWaits(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	r := f.Run("hold", "-N", "test", "x", "--id", "a", "--for", "30m")
	require.Zero(t, r.Code, r.Err)
	errs := &clitest.Signalled{At: "waiting for mutex/x", Do: sync.OnceFunc(func() {
		require.Zero(t, f.Run("release", "-N", "test", "x", "--id", "b").Code)
	})}
	args := []string{"hold", "x", "--id", "b", "--for", "30m", "-N", "test", "--endpoints", strings.Join(f.Etcd.Endpoints(), ","), "--prefix", f.Prefix}
	require.Equal(t, exit.NotAcquired, cli.Execute(testkit.Context(t), args, verb.Streams{In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: errs}))
	require.Contains(t, errs.String(), "the request was ended before it was granted")
}
