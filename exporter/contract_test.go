package exporter_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/exporter"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// A wrong argument is refused, and says what is wrong.
func TestBadInput(t *testing.T) {
	t.Parallel()
	f := shared(t)
	c := f.Client()
	for want, opts := range map[string]*exporter.Options{
		"Options.MaxNames -1 is negative":                  {MaxNames: -1},
		"Options.Probe 1ms is not between 100ms and 1h":    {Probe: time.Millisecond},
		"Options.Probe 2h0m0s is not between 100ms and 1h": {Probe: 2 * time.Hour},
		"Options.Refresh 1ms is below a second":            {Refresh: time.Millisecond},
		`the Prefix "/" is empty`:                          {Prefix: "/"},
	} {
		_, err := exporter.New(c, "test", opts)
		require.ErrorIs(t, err, exporter.ErrInvalid)
		require.EqualError(t, err, `exporter: new exporter of "test": `+want+": invalid argument") // A428
	}
	_, err := exporter.New(nil, "test", nil)
	require.ErrorIs(t, err, exporter.ErrInvalid)
	require.ErrorContains(t, err, "the client is nil")
	_, err = exporter.New(c, "", nil)
	require.ErrorIs(t, err, exporter.ErrInvalid)
}

// The package's comment lists each metric that is described, and no other.
func TestDocListsAllMetrics(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	var listed []string
	for _, m := range regexp.MustCompile(`(?m)^//\t(etcdkit_\w+) `).FindAllStringSubmatch(string(doc), -1) {
		listed = append(listed, m[1])
	}
	slices.Sort(listed)
	require.Equal(t, slices.Sorted(maps.Keys(exporter.Metrics())), listed)
}

// No label has a key of a limiter, an ID, a note, an owner whose clock agrees, a scope, a payload or a result.
func TestLabelsHaveNoSecrets(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, _ := f.Session(&concurrency.SessionOptions{TTL: 300 * time.Second, Owner: "secret-owner"})
	fill(t, f, s)
	e := f.export(s, nil)
	got := e.reaches(f)
	require.Contains(t, got, "held{"+queue("limiter", "limiter")+"}")
	for name := range got {
		require.NotContains(t, name, "secret")
	}
}

// MaxNames bounds the series. Those that need attention come first, and the rest is counted.
func TestMaxNames(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	fill(t, f, s)
	calm, err := concurrency.NewSemaphore(s, "a-calm-one", 1, nil)
	require.NoError(t, err)
	acquire(t, ctx, calm)
	all := f.export(s, nil).reaches(f)
	require.Zero(t, all["exporter_series_dropped{}"])
	few := f.export(s, &exporter.Options{MaxNames: 1}).reaches(f)
	require.Equal(t, float64(len(all)-len(few)), few["exporter_series_dropped{}"])
	require.Contains(t, few, "held{"+queue("semaphore", "sem0")+"}", "its wait is the oldest")
	require.NotContains(t, few, "held{"+queue("semaphore", "a-calm-one")+"}")
	require.Contains(t, few, "job_running{"+queue("job", "job")+"}")
	n := 0
	for name := range few {
		if strings.HasPrefix(name, "held{") || strings.HasPrefix(name, "job_running{") || strings.HasPrefix(name, "requests{") && strings.HasSuffix(name, `state="done"}`) {
			n++
		}
	}
	require.Equal(t, 3, n)
}

// The difference between clocks is that of the process whose clock is off the most, and only live
// sessions count.
func TestClockSkew(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	off, _ := f.Session(idle())
	space, err := keyspace.New(f.Root, f.namespace(s))
	require.NoError(t, err)
	e := f.export(s, nil)
	_, there := e.reaches(f)["clock_skew_seconds{}"]
	require.False(t, there, "nothing was measured")
	put := func(of *concurrency.Session, key, value string) {
		t.Helper()
		_, err := f.Client().Put(ctx, key, value, clientv3.WithLease(of.Lease()))
		require.NoError(t, err)
	}
	put(s, space.Root()+"job/x/lock", fmt.Sprintf(`{"v":1,"at":%d}`, time.Now().Add(-time.Hour).UnixMilli())) // the time of a lock may be simulated
	put(s, space.Clock(int64(s.Lease())), fmt.Sprintf(`{"v":1,"at":%d}`, time.Now().UnixMilli()))
	put(off, space.Clock(int64(off.Lease())), fmt.Sprintf(`{"v":1,"at":%d}`, time.Now().Add(10*time.Minute).UnixMilli()))
	require.Eventually(t, func() bool {
		skew := e.series()["clock_skew_seconds{}"]
		return skew > 590 && skew < 610
	}, soon, look)
	owned := fmt.Sprintf("process_clock_skew_seconds{owner=%q}", off.Owner())
	require.InDelta(t, 600, e.series()[owned], 10)
	require.NotContains(t, e.series(), fmt.Sprintf("process_clock_skew_seconds{owner=%q}", s.Owner()), "its clock agrees")
	require.NoError(t, off.Close(ctx))
	require.Eventually(t, func() bool { return e.series()["clock_skew_seconds{}"] < 60 }, soon, look)
	require.NotContains(t, e.series(), owned)
}

// The clock of a process that writes nothing more is not known after a while: it may have been set (A312 in
// internal/proof/tested-failures.md).
func TestClockOfASilentProcess(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, _ := f.Session(idle())
	space, err := keyspace.New(f.Root, f.namespace(s))
	require.NoError(t, err)
	c := newClock()
	e := f.export(s, &exporter.Options{Now: c.now})
	e.reaches(f)
	ahead := record.Clock{Owner: "web-7", AtMS: c.now().Add(10 * time.Second).UnixMilli()}.Encode()
	_, err = f.Client().Put(ctxT(t), space.Session(int64(s.Lease())).Alive(), ahead, clientv3.WithLease(s.Lease()))
	require.NoError(t, err)
	const owned = `process_clock_skew_seconds{owner="web-7"}`
	require.InDelta(t, 10, e.reaches(f)[owned], 5)
	c.add(14 * time.Minute)
	require.Contains(t, e.series(), owned)
	c.add(2 * time.Minute)
	require.NotContains(t, e.series(), owned)
	require.NotContains(t, e.series(), "clock_skew_seconds{}")
}

// A label has all of an owner that a session may have. Of longer ones, which another program writes, those that begin alike
// are one series: each scrape succeeds.
func TestOwnersThatBeginAlike(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	space, err := keyspace.New(f.Root, f.namespace(s))
	require.NoError(t, err)
	e := f.export(s, nil)
	long := strings.Repeat("x", 254)
	for i, owner := range []string{long + "1", long + "2", long + "2 and more", long + "2 and others"} {
		lease, err := f.Client().Grant(ctx, 300)
		require.NoError(t, err)
		ahead := record.Clock{Owner: owner, AtMS: time.Now().Add(time.Duration(i+1) * time.Hour).UnixMilli()}.Encode()
		_, err = f.Client().Put(ctx, space.Session(int64(lease.ID)).Alive(), ahead, clientv3.WithLease(lease.ID))
		require.NoError(t, err)
	}
	got := e.reaches(f)
	require.InDelta(t, 3600, got[fmt.Sprintf("process_clock_skew_seconds{owner=%q}", long+"1")], 60)
	require.InDelta(t, 4*3600, got[fmt.Sprintf("process_clock_skew_seconds{owner=%q}", long+"2")], 60)
}

// Read permission for the namespace is enough. Without it the exporter warns once, and shows the state when it
// gets the permission.
func TestReadPermission(t *testing.T) {
	t.Parallel()
	f := fixture{own(t)}
	ctx := ctxT(t)
	admin := f.Client()
	_, err := admin.RoleAdd(ctx, "reader")
	require.NoError(t, err)
	_, err = admin.UserAdd(ctx, "exporter", "secret")
	require.NoError(t, err)
	_, err = admin.UserGrantRole(ctx, "exporter", "reader")
	require.NoError(t, err)
	require.NoError(t, f.EnableAuth(ctx, "root", "root"))
	s, _ := f.Session(idle())
	prefix := s.NamespacePrefix()
	c := f.NewClient(t, &embedtest.ClientOptions{Username: "exporter", Password: "secret"})
	core, logs := observer.New(zap.WarnLevel)
	e := f.exportOn(c.Client, f.namespace(s), &exporter.Options{Logger: zap.New(core)})
	require.Eventually(t, func() bool { return logs.Len() > 0 }, soon, look)
	require.Contains(t, logs.All()[0].ContextMap()["error"], "permission denied")
	require.Equal(t, prefix, logs.All()[0].ContextMap()["prefix"])
	require.Equal(t, map[string]float64{"exporter_up{}": 0, "exporter_lists_total{}": 0}, e.series())
	_, err = f.Client().RoleGrantPermission(ctx, "reader", prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermRead))
	require.NoError(t, err)
	e.shows(map[string]float64{"sessions{}": 1, "exporter_up{}": 1, "exporter_lists_total{}": 1})
	mu, err := concurrency.NewMutex(s, "later")
	require.NoError(t, err)
	_, err = mu.Lock(ctx)
	require.NoError(t, err)
	e.shows(map[string]float64{"held{" + queue("mutex", "later") + "}": 1})
	require.Equal(t, 1, logs.Len())
}
