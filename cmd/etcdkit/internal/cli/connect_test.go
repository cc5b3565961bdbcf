package cli_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// The connection can be configured as etcdctl's, and a flag counts more than its variable.
func TestEnvironment(t *testing.T) {
	f := clitest.New(t)
	f.Crowd("charge")
	t.Setenv("ETCDCTL_ENDPOINTS", strings.Join(f.Etcd.Endpoints(), ","))
	t.Setenv("ETCDKIT_PREFIX", f.Prefix)
	t.Setenv("ETCDKIT_NAMESPACE", "test")
	t.Setenv("ETCDKIT_OUTPUT", "json")
	ls := func(args ...string) clitest.Result {
		var out, errs bytes.Buffer
		code := cli.Execute(testkit.Context(t), append([]string{"ls"}, args...), verb.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		return clitest.Result{Code: code, Out: out.String(), Err: errs.String()}
	}
	r := ls()
	require.Zero(t, r.Code, r.Err)
	require.Contains(t, r.Out, `"name":"charge"`)
	r = ls("-o", "table", "-N", "other")
	require.Zero(t, r.Code, r.Err)
	require.Equal(t, "KIND/NAME  REQUESTS\n", r.Out)
	for _, flag := range []string{"--cacert", "--cert", "--key", "--endpoints", "--user", "-N"} {
		r = ls(flag, "")
		require.Equal(t, exit.Usage, r.Code, flag)
		require.Contains(t, r.Err, "is empty", flag)
	}
	for line, want := range map[string]string{"show ": "semaphore/charge\n:4\n", "show --endpoints 127.0.0.1:1 ": ":4\n"} {
		var out bytes.Buffer
		require.Zero(t, cli.Execute(testkit.Context(t), append([]string{"__complete"}, strings.Split(line, " ")...), verb.Streams{In: strings.NewReader(""), Out: &out, Err: io.Discard}))
		require.Equal(t, want, out.String(), "%s: of one cluster", line)
	}
	t.Setenv("ETCDCTL_DISCOVERY_SRV", "example.com")
	r = ls()
	require.Equal(t, exit.Usage, r.Code)
	require.Contains(t, r.Err, "ETCDCTL_DISCOVERY_SRV")
	require.Zero(t, ls("--endpoints", strings.Join(f.Etcd.Endpoints(), ",")).Code, "the cluster is given")
	t.Setenv("ETCDCTL_DISCOVERY_SRV", "")
	t.Setenv("ETCDCTL_COMMAND_TIMEOUT", "soon")
	r = ls()
	require.Equal(t, exit.Usage, r.Code)
	require.Contains(t, r.Err, `ETCDCTL_COMMAND_TIMEOUT="soon"`)
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	for _, line := range []string{"ls", "show x", "limit x 3", "evict x 1 --yes", "elections", "jobs", "jobs watch x", "requests", "requests list x", "console", "show x --user a:b --dial-timeout 300ms"} {
		var out, errs bytes.Buffer
		args := append([]string{"-N", "test", "--endpoints", l.Addr().String(), "--command-timeout", "300ms"}, clitest.Words(t, line)...)
		code := cli.Execute(testkit.Context(t), args, verb.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		require.Equal(t, exit.Unreachable, code, line)
		require.Contains(t, errs.String(), l.Addr().String(), line)
		require.Contains(t, errs.String(), "etcdkit doctor", line)
		require.Contains(t, errs.String(), "refused", line)
		require.Empty(t, out.String(), line)
	}
}

func TestDenied(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Start(t, nil)
	ctx := testkit.Context(t)
	require.NoError(t, etcd.EnableAuth(ctx, "root", "secret"))
	require.NoError(t, etcd.AddUser(ctx, "guest", "guest", "/elsewhere/"))
	run := func(args ...string) clitest.Result {
		var out, errs bytes.Buffer
		code := cli.Execute(ctx, append(args, "--endpoints", strings.Join(etcd.Endpoints(), ","), "-N", "test"), verb.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		return clitest.Result{Code: code, Out: out.String(), Err: errs.String()}
	}
	for name, args := range map[string][]string{
		"no user":        {"ls"},
		"wrong password": {"ls", "--user", "guest:wrong"},
		"no permission":  {"ls", "--user", "guest:guest"},
	} {
		r := run(args...)
		require.Equal(t, exit.Denied, r.Code, "%s: %s", name, r.Err)
		require.Contains(t, r.Err, "--user", name)
		require.NotContains(t, r.Err, "wrong", name)
		require.Equal(t, name == "no permission", strings.Contains(r.Err, "roles"), "%s: %s", name, r.Err)
	}
	r := run("ls", "--user", "root", "--password", "secret")
	require.Zero(t, r.Code, r.Err)
	r = run("ls", "--user", "root")
	require.Equal(t, exit.Usage, r.Code)
	require.Contains(t, r.Err, "ETCDCTL_PASSWORD")
	require.Equal(t, exit.Usage, run("ls", "--password", "x").Code)
}

// A verb that is interrupted exits with the signal's code.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	f.Crowd("charge")
	ctx, cancel := context.WithCancelCause(testkit.Context(t))
	defer cancel(nil)
	out := &clitest.Signalled{At: "semaphore/charge", Do: func() { cancel(exit.Interrupted{Signal: syscall.SIGINT}) }}
	var errs bytes.Buffer
	args := []string{"show", "-w", "-N", "test", "charge", "--endpoints", strings.Join(f.Etcd.Endpoints(), ","), "--prefix", f.Prefix}
	require.Equal(t, 130, cli.Execute(ctx, args, verb.Streams{In: strings.NewReader(""), Out: out, Err: &errs}))
}

// Verbs that change nothing need read permission alone, and take no lease.
func TestReadOnlyUser(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Start(t, nil)
	ctx := testkit.Context(t)
	admin := etcd.Client()
	_, err := admin.RoleAdd(ctx, "reader")
	require.NoError(t, err)
	const root = keyspace.DefaultPrefix + "/v1/test/"
	_, err = admin.RoleGrantPermission(ctx, "reader", root, clientv3.GetPrefixRangeEnd(root), clientv3.PermissionType(clientv3.PermRead))
	require.NoError(t, err)
	_, err = admin.UserAdd(ctx, "reader", "secret")
	require.NoError(t, err)
	_, err = admin.UserGrantRole(ctx, "reader", "reader")
	require.NoError(t, err)
	require.NoError(t, etcd.AddUser(ctx, "guest", "secret", "/elsewhere/"))
	require.NoError(t, etcd.EnableAuth(ctx, "root", "secret"))
	fill(t, testkit.SessionOn(t, etcd.Client(), keyspace.DefaultPrefix, &concurrency.SessionOptions{Owner: "web-7"}))
	leases := func() (ids []clientv3.LeaseID) {
		resp, err := etcd.Client().Leases(ctx)
		require.NoError(t, err)
		for _, l := range resp.Leases {
			ids = append(ids, l.ID)
		}
		return ids
	}
	before := leases()
	run := func(line, user string) clitest.Result {
		out := clitest.Signalled{Do: func() {}}
		var errs bytes.Buffer
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		if strings.Contains(line, "-w") || line == "console" { // it lasts until it is interrupted
			out.At, out.Do = "\n", func() {
				require.ElementsMatch(t, before, leases(), line)
				cancel(exit.Interrupted{Signal: syscall.SIGINT})
			}
		}
		args := append(strings.Fields(line), "--endpoints", strings.Join(etcd.Endpoints(), ","), "-N", "test", "--user", user+":secret", "--command-timeout", "1m", "--dial-timeout", "1m")
		code := cli.Execute(ctx, args, verb.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		return clitest.Result{Code: code, Out: out.String(), Err: errs.String()}
	}
	for _, line := range []string{
		"ls", "top", "elections", "jobs", "requests", "changes", "console",
		"show charge", "show charge -w", "show election/shard-7", "show limiter/api", "show limiter/api/tenant-7", "show rate/mail",
		"limit charge", "limit limiter/api", "limit rate/mail",
		"jobs history sweep", "requests list orders", "requests stats orders",
	} {
		r := run(line, "reader")
		require.Contains(t, []int{0, 130}, r.Code, "%s: %s", line, r.Err)
		require.NotEmpty(t, r.Out, line)
		require.ElementsMatch(t, before, leases(), line)
		require.Equal(t, exit.Denied, run(line, "guest").Code, line)
	}
	r := run("doctor", "reader")
	require.Zero(t, r.Code, "a role that reads is a warning: %s", r.Out)
	require.Contains(t, r.Out, "WARN  session: no session")
	require.Contains(t, r.Out, "5 queues", "what needs no lease is examined")
	require.Equal(t, exit.Denied, run("jobs watch sweep", "guest").Code)
	token := regexp.MustCompile(`"token":"(\d+)"`).FindStringSubmatch(run("show charge -o json", "reader").Out)[1]
	for _, line := range []string{"limit charge 3", "limit limiter/api/tenant-7 9", "evict charge " + token + " --yes", "evict charge " + token + " --yes --force", "elections step-down shard-7 --yes", "jobs pause sweep --reason x", "console --write", "conformance --yes --only Limit", "bench --yes"} {
		r := run(line, "reader")
		require.Equal(t, exit.Denied, r.Code, "%s: %s%s", line, r.Out, r.Err)
	}
}

// fill leaves something of each kind in a namespace.
func fill(t *testing.T, sess *concurrency.Session) {
	ctx := testkit.Context(t)
	held := func(_ *concurrency.Permit, err error) { require.NoError(t, err) }
	sm, err := concurrency.NewSemaphore(sess, "charge", 2, nil)
	require.NoError(t, err)
	held(sm.Acquire(ctx))
	el, err := concurrency.NewElection(sess, "shard-7")
	require.NoError(t, err)
	held(el.Campaign(ctx))
	kl, err := concurrency.NewKeyedLimiter(sess, "api", 5, &concurrency.KeyedLimiterOptions{Total: 200})
	require.NoError(t, err)
	held(kl.Key("tenant-7").Acquire(ctx))
	rl, err := concurrency.NewRateLimiter(sess, "mail", concurrency.Rate{PerSecond: 10, Burst: 1}, nil)
	require.NoError(t, err)
	require.NoError(t, rl.Wait(ctx))
	l, err := schedlock.New(sess, nil)
	require.NoError(t, err)
	_, err = l.Do(ctx, "sweep", func(context.Context, *schedlock.Run) error { return nil }, schedlock.Tick(time.Now().Truncate(time.Hour)), schedlock.Every(time.Hour))
	require.NoError(t, err)
	st, err := idempotency.NewStore(sess, "orders", nil)
	require.NoError(t, err)
	_, err = idempotency.Do(ctx, st, idempotency.Key{Scope: "t", Op: "pay", ID: "1"}, nil, func(context.Context, *idempotency.Attempt) (int, error) { return 7, nil })
	require.NoError(t, err)
}

// A540: a verb that serves returns the error that came before the signal, although its session closes after that.
func TestErrorBeforeASignalThatServes(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	failed := exit.Errorf(exit.Usage, "listen: address already in use")
	ctx, signal := context.WithCancel(testkit.Context(t))
	err := f.Call(io.Discard).Connected(ctx, &concurrency.SessionOptions{}, func(context.Context, *clientv3.Client, *concurrency.Session) error { return failed })
	signal()
	require.ErrorIs(t, exit.Served(ctx, err), failed)
	require.Equal(t, exit.Usage, exit.CodeOf(err))
}
