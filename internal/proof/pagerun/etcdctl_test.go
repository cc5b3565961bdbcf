package pagerun

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/pagecode"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

func TestMain(m *testing.M) { embedtest.Main(m) }

// root is the repository.
const root = "../../../"

// page returns a page of the repository.
func page(t *testing.T, name string) pagecode.Page {
	t.Helper()
	text, err := os.ReadFile(root + name)
	require.NoError(t, err)
	return pagecode.Parse(string(text))
}

// block returns the block of a page that begins with a text.
func block(t *testing.T, p pagecode.Page, begin string) pagecode.Block {
	t.Helper()
	i := slices.IndexFunc(p.Blocks, func(b pagecode.Block) bool { return strings.HasPrefix(b.Text, begin) })
	require.GreaterOrEqual(t, i, 0, "no block begins with %q", begin)
	return p.Blocks[i]
}

// unreachable is how go says that it has no way to a module.
var unreachable = regexp.MustCompile(`dial tcp|module lookup disabled|TLS handshake timeout|no such host`)

// version is that of etcdctl in the Makefile.
var version = regexp.MustCompile(`(?m)^ETCDCTL +:= (v\S+)$`)

// etcdctl returns the folder that has it: bin, where make runbook has built it, or one in which it is built. The module
// of etcdctl is none of this one's, so that it may have to be downloaded.
func etcdctl(t *testing.T) string {
	t.Helper()
	bin, err := filepath.Abs(root + "bin")
	require.NoError(t, err)
	if _, err := os.Stat(bin + "/etcdctl"); err == nil {
		return bin
	}
	makefile, err := os.ReadFile(root + "Makefile")
	require.NoError(t, err)
	m := version.FindSubmatch(makefile)
	require.NotNil(t, m, "the Makefile has no version of etcdctl")
	dir := t.TempDir()
	for _, args := range [][]string{{"mod", "init", "etcdtools"}, {"get", "go.etcd.io/etcd/etcdctl/v3@" + string(m[1])}, {"build", "-o", dir + "/etcdctl", "go.etcd.io/etcd/etcdctl/v3"}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		if unreachable.Match(out) {
			t.Skipf("etcdctl cannot be built here: %s", out)
		}
		require.NoError(t, err, "go %v\n%s", args, out)
	}
	return dir
}

// shell types lines, with etcdctl for an etcd of its own.
type shell struct {
	*testing.T
	etcd *embedtest.Cluster
	vars []string
}

func (s shell) types(line string) string {
	s.Helper()
	cmd := exec.CommandContext(testkit.Context(s.T), "bash", "-ec", line)
	cmd.Env = append(os.Environ(), s.vars...)
	out, err := cmd.CombinedOutput()
	require.NoError(s.T, err, "%s\n%s", line, out)
	return string(out)
}

// What pages show of etcdctl is what it prints, and what it does.
func TestEtcdctl(t *testing.T) {
	if testing.Short() {
		t.Skip("it may build etcdctl")
	}
	dir := etcdctl(t)
	for name, test := range map[string]func(shell){"storage": storage, "roles": roles, "removed": removed, "text": within} {
		t.Run(name, func(t *testing.T) {
			etcd := embedtest.Start(t, nil) // the pages name keys below the usual prefix
			if etcd.External() {
				t.Skip("the external cluster is not this test's own")
			}
			test(shell{t, etcd, []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "ETCDCTL_ENDPOINTS=" + strings.Join(etcd.Endpoints(), ",")}})
		})
	}
}

// shows types the steps of a transcript, and compares what is printed with what the page shows. real has the words of
// this run, behind those of the page.
func (s shell) shows(b pagecode.Block, real ...string) {
	s.Helper()
	ours := strings.NewReplacer(real...)
	for _, step := range b.Steps() {
		shown, printed := ours.Replace(step.Shown), s.types(ours.Replace(step.Typed))
		for _, m := range masks {
			shown, printed = m.of.ReplaceAllStringFunc(shown, m.by), m.of.ReplaceAllStringFunc(printed, m.by)
		}
		require.True(s.T, pagecode.Shows(shown, printed), "line %d: %s\nshown:\n%s\nprinted:\n%s", step.Line, step.Typed, shown, printed)
	}
}

// A mask makes equal what differs from run to run.
type mask struct {
	of *regexp.Regexp
	by func(string) string
}

var masks = []mask{
	{regexp.MustCompile(`\b\d{13}\b|remaining\(\d+s\)`), func(string) string { return "0" }},
	{regexp.MustCompile(`"nonce":"[^"]*"`), func(string) string { return `"nonce":""` }},
	{regexp.MustCompile(`\(\[[^\]]*\]\)`), func(keys string) string { // etcd lists the keys of a lease in any order
		all := strings.Fields(strings.Trim(keys, "([])"))
		slices.Sort(all)
		return fmt.Sprint(all)
	}},
}

// session starts one of the namespace that the pages name.
func (s shell) session(owner string) *concurrency.Session {
	s.Helper()
	sess, err := concurrency.NewSession(testkit.Context(s.T), s.etcd.NewClient(s.T, nil).Client, "payments", &concurrency.SessionOptions{Owner: owner})
	require.NoError(s.T, err)
	s.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = sess.Close(ctx)
	})
	return sess
}

// storage: what is stored of a queue, of a session, a leader and a job.
func storage(s shell) {
	t, p, ctx := s.T, page(s.T, "docs/storage.md"), testkit.Context(s.T)
	web1, web2 := s.session("web-1"), s.session("web-2")
	sem := func(sess *concurrency.Session) *concurrency.Semaphore {
		sm, err := concurrency.NewSemaphore(sess, "charge", 3, nil)
		require.NoError(t, err)
		return sm
	}
	_, err := sem(web1).Acquire(ctx, concurrency.ID("order-17"), concurrency.Note("card"))
	require.NoError(t, err)
	_, err = sem(web2).Acquire(ctx, concurrency.Weight(2))
	require.NoError(t, err)
	go func() { _, _ = sem(web1).Acquire(ctx) }()
	for st, err := range sem(web2).Watch(ctx) {
		require.NoError(t, err)
		if len(st.Waiters) == 1 {
			break
		}
	}
	real := []string{"1c211863899af721", fmt.Sprintf("%016x", int64(web1.Lease())), "09a3ccecb194b6ff", fmt.Sprintf("%016x", int64(web2.Lease()))}
	s.shows(block(t, p, "$ etcdctl get --prefix --sort-by=CREATE"), real...)
	s.shows(block(t, p, "$ etcdctl lease timetolive"), real...)

	el, err := concurrency.NewElection(web1, "ingest")
	require.NoError(t, err)
	_, err = el.Campaign(ctx, concurrency.Note("10.0.0.7:80"))
	require.NoError(t, err)
	require.Contains(t, s.types(block(t, p, "etcdctl get --prefix --sort-by=CREATE --limit=1").Text), `"note":"10.0.0.7:80"`)
	lk, err := schedlock.New(web1, nil)
	require.NoError(t, err)
	_, err = lk.Do(ctx, "invoices", func(context.Context, *schedlock.Run) error { return nil }, schedlock.Tick(time.Now().Truncate(time.Hour)))
	require.NoError(t, err)
	require.Contains(t, s.types(block(t, p, "etcdctl get --prefix /etcdkit/v1/payments/job/").Text), `"state":"done"`)
}

// roles: that of a service, and that of a shell job, allow a namespace and no other.
func roles(s shell) {
	t, ctx := s.T, testkit.Context(s.T)
	s.types(block(t, page(t, "docs/operations.md"), "etcdctl role add app").Text)
	s.types(block(t, page(t, "examples/quickstart/shell/README.md"), "etcdctl role add nights").Text)
	for name, prefix := range map[string]string{"app": "/etcdkit/v1/payments/", "nights": "/etcdkit/v1/nights/"} {
		role, err := s.etcd.Client().RoleGet(ctx, name)
		require.NoError(t, err)
		require.Len(t, role.Perm, 1)
		require.Equal(t, prefix, string(role.Perm[0].Key))
		require.Equal(t, clientv3.GetPrefixRangeEnd(prefix), string(role.Perm[0].RangeEnd))
		require.EqualValues(t, clientv3.PermReadWrite, role.Perm[0].PermType)
	}
	user, err := s.etcd.Client().UserGet(ctx, "nights")
	require.NoError(t, err)
	require.Equal(t, []string{"nights"}, user.Roles)
}

// removed: what the programs of the quickstart leave.
func removed(s shell) {
	t, ctx := s.T, testkit.Context(s.T)
	for _, key := range []string{"/etcdkit/v1/quickstart/semaphore/render/limit", "/etcdkit/v1/evening/a", "/etcdkit/v1/quickstarts/b"} {
		_, err := s.etcd.Client().Put(ctx, key, "")
		require.NoError(t, err)
	}
	s.types(block(t, page(t, "examples/quickstart/README.md"), "etcdctl del --prefix").Text)
	resp, err := s.etcd.Client().Get(ctx, "/etcdkit/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, resp.Kvs, 1, "the key of another namespace")
}

// within: what pages name within their text, with the lease that a reader has: in decimal as etcdkit prints it, and in
// hexadecimal as etcdctl does.
func within(s shell) {
	t, ctx := s.T, testkit.Context(s.T)
	text, err := os.ReadFile(root + "docs/operations.md")
	require.NoError(t, err)
	for _, line := range []string{"etcdctl endpoint health --cluster", "etcdctl alarm list", `etcdctl lease revoke "$(printf %x LEASE)"`, "etcdctl lease revoke <lease>"} {
		require.Contains(t, string(text), "`"+line+"`")
		lease, err := s.etcd.Client().Grant(ctx, 60)
		require.NoError(t, err)
		printed := s.types(strings.NewReplacer("LEASE", fmt.Sprint(int64(lease.ID)), "<lease>", fmt.Sprintf("%x", int64(lease.ID))).Replace(line))
		left, err := s.etcd.Client().TimeToLive(ctx, lease.ID)
		require.NoError(t, err)
		require.Equal(t, strings.Contains(line, "revoke"), left.TTL <= 0, "%s\n%s", line, printed)
	}
}
