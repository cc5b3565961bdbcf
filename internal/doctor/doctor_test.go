package doctor

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/impostor"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// A write that is measured is stored by a majority, and changes nothing, whatever is at its key.
func TestWritesChangeNothing(t *testing.T) {
	t.Parallel()
	f := testkit.Own(t, 1)
	ctx := testkit.Context(t)
	c := f.Client()
	put, err := c.Put(ctx, "/x", "kept")
	require.NoError(t, err)
	before := f.RaftIndex()
	_, err = Writes(ctx, c, "/x", 3)
	require.NoError(t, err)
	_, err = Reads(ctx, c, "/x", 3)
	require.NoError(t, err)
	require.GreaterOrEqual(t, f.RaftIndex()-before, uint64(3), "each write is an entry of the log")
	got, err := c.Get(ctx, "/x")
	require.NoError(t, err)
	require.Equal(t, put.Header.Revision, got.Header.Revision)
	require.Equal(t, "kept", string(got.Kvs[0].Value))
}

// Each user's grants are found part by part, and nothing is written or deleted for that.
func TestPermissions(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Start(t, nil)
	ctx := testkit.Context(t)
	space, err := keyspace.New("/doctor", "test")
	require.NoError(t, err)
	root := space.Root()
	require.NoError(t, etcd.AddUser(ctx, "app", "secret", root))
	require.NoError(t, etcd.AddUser(ctx, "other", "secret", "/doctor/v1/other/"))
	require.NoError(t, etcd.AddUser(ctx, "short", "secret", root+"session/", root+"unused/"))
	for name, own := range map[string][]string{"reader": nil, "dash": {root + "session/"}} {
		require.NoError(t, etcd.AddUser(ctx, name, "secret", own...))
		_, err := etcd.Client().RoleGrantPermission(ctx, name, root, clientv3.GetPrefixRangeEnd(root), clientv3.PermissionType(clientv3.PermRead))
		require.NoError(t, err)
	}
	require.NoError(t, etcd.AddUser(ctx, "exact", "secret"))
	_, err = etcd.Client().RoleGrantPermission(ctx, "exact", root, "", clientv3.PermissionType(clientv3.PermReadWrite)) // without --prefix
	require.NoError(t, err)
	_, err = etcd.Client().Put(ctx, space.Queue(keyspace.Semaphore, "x").Limit, "kept")
	require.NoError(t, err)
	require.NoError(t, etcd.EnableAuth(ctx, "root", "root"))
	before, err := etcd.Revision(ctx)
	require.NoError(t, err)
	for name, want := range map[string]Finding{
		"app":    {Level: OK, Text: "the namespace may be read and written"},
		"reader": {Level: Warn, Text: "the user may read the namespace, and not write it"},
		"dash":   {Level: Warn, Text: "the user may read the namespace, and write only session/"},
		"other":  {Level: Fail, Text: "the user may neither read nor write any part of the namespace"},
		"exact":  {Level: Fail, Text: "the user may neither read nor write any part of the namespace"},
		"short":  {Level: Fail, Text: "the user may not write semaphore/ mutex/ election/ rate/ bucket/ limiter/ sharing/ request-id/ job/ clock/ jobs-of/ idempotency/ change/, and may not read semaphore/ mutex/ election/ rate/ bucket/ limiter/ sharing/ request-id/ job/ clock/ jobs-of/ idempotency/ change/"},
	} {
		c := etcd.NewClient(t, &embedtest.ClientOptions{Username: name, Password: "secret"})
		g, err := Permissions(ctx, c, space)
		require.NoError(t, err, name)
		got := g.Findings(root)
		require.Equal(t, want, Finding{Level: got[0].Level, Text: got[0].Text}, name)
	}
	after, err := etcd.Revision(ctx)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

// What answers at an endpoint is known by its answers, and by nothing that it could not do as a plain forwarder.
func TestKinds(t *testing.T) {
	t.Parallel()
	f := testkit.Own(t, 1)
	ctx := testkit.Context(t)
	at := f.Endpoints()[0]
	for name, c := range map[string]struct {
		endpoint string
		want     kind
	}{
		"etcd": {at, member}, "behind a balancer": {impostor.Forwarder(t, host(at)), member},
		"behind its proxy": {impostor.Proxy(t, host(at)), proxied}, "kine": {impostor.Kine(t), other}, "nothing": {"127.0.0.1:1", silent},
	} {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{c.endpoint}})
		require.NoError(t, err)
		defer client.Close()
		got := Ask(ctx, client, testkit.Soon, testkit.Soon).Answers[0]
		require.Equal(t, c.want, got.kind(), "%s: %+v", name, got)
		if c.want == member {
			require.NoError(t, got.RenewalErr)
			require.Zero(t, got.Renewal, "etcd's answer to a renewal of no lease")
		}
	}
}

// An alarm is named once, with the member that has raised it, however many members list it.
func TestAlarmsOfOneMember(t *testing.T) {
	t.Parallel()
	f := testkit.Own(t, 3)
	ctx := testkit.Context(t)
	list, err := f.Client().MemberList(ctx)
	require.NoError(t, err)
	m := list.Members[1]
	maintenance := pb.NewMaintenanceClient(f.Client().ActiveConnection())
	_, err = maintenance.Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: m.ID, Alarm: pb.AlarmType_NOSPACE})
	require.NoError(t, err)
	var s Survey
	require.Eventually(t, func() bool { // each member lists it
		s = Ask(ctx, f.Client(), testkit.Soon, testkit.Soon)
		return !slices.ContainsFunc(s.Answers, func(a Answer) bool { return len(a.Status.GetErrors()) == 0 })
	}, testkit.Soon, testkit.Soon/1000)
	found := Alarms(s)
	require.Len(t, found, 1)
	require.Equal(t, "NOSPACE, raised by member "+describe(m), found[0].Text)
}
