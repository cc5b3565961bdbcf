package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/impostor"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// doctorAt executes doctor on these endpoints.
func doctorAt(t *testing.T, prefix string, endpoints ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	args := []string{"--endpoints", strings.Join(endpoints, ","), "--prefix", prefix, "doctor", "-N", "test", "-o", "json", "--slow", "1m"}
	code := execute(testkit.Context(t), args, Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	return result{code, out.String(), errs.String()}
}

// A user that may not do all that a service does is a failure that names what it may not; a role that only reads, as the
// documentation has it for people and dashboards, is a warning.
func TestDoctorNamesWhatAUserMayNot(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Start(t, nil)
	f := &fixture{t: t, etcd: etcd, prefix: "/doctor"}
	ctx := testkit.Context(t)
	const root = "/doctor/v1/test/"
	require.NoError(t, etcd.AddUser(ctx, "short", "secret", root+"session/", root+"semaphore/"))
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
		"reader": {exitOK, "WARN the user may read the namespace, and not write it", "WARN no session: the user may only read"},
		"dash":   {exitOK, "WARN the user may read the namespace, and write only session/", "OK a session was opened"},
		"short":  {exitFailed, "FAIL the user may not write sem/ mutex/", "OK a session was opened"},
	} {
		r := f.run("doctor", "-N", "test", "-o", "json", "--slow", "1m", "--user", user+":secret")
		require.Equal(t, want.code, r.code, "%s: %s%s", user, r.out, r.err)
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
		"all":                {[]string{at(0), at(1), at(2)}, exitOK, "members", "OK 3 voting members"},
		"one of three":       {[]string{at(0)}, exitOK, "members", "WARN 2 of 3 members are not among the endpoints"},
		"a balancer":         {[]string{impostor.Forwarder(t, at(0)), at(1), at(2)}, exitOK, "members", "is no address that a member has for clients"},
		"one twice":          {[]string{impostor.Forwarder(t, at(0)), at(0), at(1), at(2)}, exitOK, "members", "are the same member"},
		"etcd's proxy":       {[]string{impostor.Proxy(t, at(0))}, exitFailed, "endpoint", "FAIL " + "127.0.0.1"},
		"a proxy among them": {[]string{at(0), at(1), impostor.Proxy(t, at(2))}, exitFailed, "endpoint", "etcd's gRPC proxy answers, and no member"},
		"kine":               {[]string{impostor.Kine(t)}, exitFailed, "endpoint", "no etcd: the server speaks its API"},
	} {
		r := doctorAt(t, "/doctor", c.endpoints...)
		require.Equal(t, c.code, r.code, "%s: %s%s", name, r.out, r.err)
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
	f := newFixture(t)
	ctx := testkit.Context(t)
	space, err := keyspace.New(f.prefix, "test")
	require.NoError(t, err)
	for _, key := range []string{"limiter/api/junk", "idem/orders/junk", "session/xyz", "zzz/unknown", "sem/charge/junk", "job/sweep/junk"} {
		_, err := f.etcd.Client().Put(ctx, space.Root()+key, "")
		require.NoError(t, err)
	}
	_, by := findings(t, f.run("doctor", "-N", "test", "-o", "json", "--slow", "1m"))
	require.Equal(t, "WARN foreign keys (4): \"idem/orders/junk\", \"limiter/api/junk\", \"session/xyz\", \"zzz/unknown\"\n", by["keys"])
	require.Contains(t, by["queues"], "WARN semaphore/charge: 1 foreign key")
	require.Contains(t, by["jobs"], "WARN job sweep: 1 foreign key")
	require.Contains(t, by["session"], "OK a renewal is answered")
}
