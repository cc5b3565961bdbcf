package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/embedtest"
	checks "github.com/etcdkit/etcdkit/internal/doctor"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/impostor"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// doctorAt executes doctor on these endpoints.
func doctorAt(t *testing.T, prefix string, endpoints ...string) clitest.Result {
	t.Helper()
	var out, errs bytes.Buffer
	args := []string{"--endpoints", strings.Join(endpoints, ","), "--prefix", prefix, "doctor", "-N", "test", "-o", "json", "--slow", "1m"}
	code := cli.Execute(testkit.Context(t), args, verb.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	return clitest.Result{Code: code, Out: out.String(), Err: errs.String()}
}

// A user that may not do all that a service does is a failure that names what it may not; a role that only reads, as the
// documentation has it for people and dashboards, is a warning.
func TestDoctorNamesWhatAUserMayNot(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Start(t, nil)
	f := &clitest.Fixture{T: t, Etcd: etcd, Prefix: "/doctor"}
	ctx := testkit.Context(t)
	const root = "/doctor/v1/test/"
	require.NoError(t, etcd.AddUser(ctx, "short", "secret", root+"session/", root+"unused/"))
	for name, own := range map[string][]string{"reader": nil, "dash": {root + "session/"}} {
		require.NoError(t, etcd.AddUser(ctx, name, "secret", own...))
		_, err := etcd.Client().RoleGrantPermission(ctx, name, root, clientv3.GetPrefixRangeEnd(root), clientv3.PermissionType(clientv3.PermRead))
		require.NoError(t, err)
	}
	require.NoError(t, etcd.EnableAuth(ctx, "root", "root"))
	for user, want := range map[string]struct {
		code                 int
		permissions, session string
	}{
		"reader": {exit.OK, "WARN the user may read the namespace, and not write it", "WARN no session: the user may only read"},
		"dash":   {exit.OK, "WARN the user may read the namespace, and write only session/", "OK a session was opened"},
		"short":  {exit.Failed, "FAIL the user may not write semaphore/ mutex/", "OK a session was opened"},
	} {
		r := f.Run("doctor", "-N", "test", "-o", "json", "--slow", "1m", "--user", user+":secret")
		require.Equal(t, want.code, r.Code, "%s: %s%s", user, r.Out, r.Err)
		_, by := findings(t, r)
		require.Contains(t, by["permissions"], want.permissions, user)
		require.Contains(t, by["session"], want.session, user)
	}
}

// The endpoints are compared with the members, and what is no member is named.
func TestDoctorOfEndpoints(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Start(t, &embedtest.Options{Members: 3})
	at := func(i int) string { return strings.TrimPrefix(etcd.Endpoints()[i], "http://") }
	for name, c := range map[string]struct {
		endpoints []string
		code      int
		check     string
		want      string
	}{
		"all":                {[]string{at(0), at(1), at(2)}, exit.OK, "members", "OK 3 voting members"},
		"one of three":       {[]string{at(0)}, exit.OK, "members", "WARN 2 of 3 members are not among the endpoints"},
		"a balancer":         {[]string{impostor.Forwarder(t, at(0)), at(1), at(2)}, exit.OK, "members", "is no address that a member has for clients"},
		"one twice":          {[]string{impostor.Forwarder(t, at(0)), at(0), at(1), at(2)}, exit.OK, "members", "are the same member"},
		"etcd's proxy":       {[]string{impostor.Proxy(t, at(0))}, exit.Failed, "endpoint", "FAIL " + "127.0.0.1"},
		"a proxy among them": {[]string{at(0), at(1), impostor.Proxy(t, at(2))}, exit.Failed, "endpoint", "etcd's gRPC proxy answers, and no member"},
		"kine":               {[]string{impostor.Kine(t)}, exit.Failed, "endpoint", "no etcd: the server speaks its API"},
	} {
		r := doctorAt(t, "/doctor", c.endpoints...)
		for n := 0; n < 10 && r.Code != c.code && strings.Contains(r.Out, "no leader"); n++ { // a busy machine may have the members elect again
			r = doctorAt(t, "/doctor", c.endpoints...)
		}
		require.Equal(t, c.code, r.Code, "%s: %s%s", name, r.Out, r.Err)
		all, by := findings(t, r)
		require.Contains(t, by[c.check], c.want, "%s: %s", name, all)
		if name == "kine" {
			for _, wrong := range []string{"no leader", "older than", "quota", "unknown service", "lost contact"} {
				require.NotContains(t, all, wrong, "one cause, and no other is named")
			}
		}
	}
}

// Foreign keys of each part are named, and those of queues and jobs by their own checks.
func TestDoctorOfForeignKeys(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx := testkit.Context(t)
	space, err := keyspace.New(f.Prefix, "test")
	require.NoError(t, err)
	for _, key := range []string{"limiter/api/junk", "idempotency/orders/junk", "session/xyz", "zzz/unknown", "semaphore/charge/junk", "job/sweep/junk"} {
		_, err := f.Etcd.Client().Put(ctx, space.Root()+key, "")
		require.NoError(t, err)
	}
	_, by := findings(t, f.Run("doctor", "-N", "test", "-o", "json", "--slow", "1m"))
	require.Equal(t, "WARN foreign keys (4): \"idempotency/orders/junk\", \"limiter/api/junk\", \"session/xyz\", \"zzz/unknown\"\n", by["keys"])
	require.Contains(t, by["queues"], fmt.Sprintf("WARN semaphore/charge: 1 foreign key: %q\n", space.Root()+"semaphore/charge/junk"), "the key that is to be deleted")
	require.Contains(t, by["jobs"], "WARN job sweep: 1 foreign key")
	require.Contains(t, by["session"], "OK a renewal is answered")
}

// findings are those of one execution, by their check.
func findings(t *testing.T, r clitest.Result) (all string, by map[string]string) {
	t.Helper()
	var got struct {
		output.Form
		Findings []checks.Finding
	}
	require.NoError(t, json.Unmarshal([]byte(r.Out), &got), "%s%s", r.Out, r.Err)
	require.Equal(t, "etcdkit.doctor/v1", got.Schema)
	by = map[string]string{}
	for _, f := range got.Findings {
		by[f.Check] += fmt.Sprintf("%s %s\n", f.Level, f.Text)
	}
	return r.Out, by
}
