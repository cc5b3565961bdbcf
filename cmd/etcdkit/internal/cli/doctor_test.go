package cli_test

import (
	"context"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/schedlock"
)

func TestDoctor(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	if f.Etcd.External() {
		t.Skip("its text is that of one member")
	}
	f.Also = []clitest.Pattern{ // a cluster of the user's has any number of revisions
		{Of: regexp.MustCompile(`(OK|WARN)  compaction: .*\n(  Each acquire .*\n)?`), As: "OK  compaction: fewer than 200000 revisions are kept\n"},
		{Of: regexp.MustCompile(`\d+ clocks? (is|are) not known: of \d+ sessions?, \d+ wrote`), As: "7 clocks are not known: of 8 sessions, 7 wrote"}, // one may write just then
		{Of: regexp.MustCompile(`"level":"(OK|WARN)","check":"compaction",[^}]*`), As: `"level":"OK","check":"compaction","text":"fewer than 200000 revisions are kept"`},
	}
	f.Shows(strings.TrimSuffix(f.Prefix, "/"), "/etcdkit")
	ctx := testkit.Context(t)
	f.Shell("doctor --slow 1m")
	f.Shell("doctor -N test --slow 1m")
	s := f.Session("web-7")
	f.Crowd("charge")
	l := f.Locker("web-7")
	_, err := l.Do(ctx, "invoices", clitest.Nothing, schedlock.Tick(clitest.Tick(0)))
	require.NoError(t, err)
	dies := f.Session("web-9")
	other, err := schedlock.New(dies, nil)
	require.NoError(t, err)
	_, done := f.Active(other, "sweep", schedlock.Tick(clitest.Tick(0)))
	_, err = f.Etcd.Client().Revoke(ctx, dies.Lease())
	require.NoError(t, err)
	require.ErrorIs(t, testkit.Got(t, done, "it is lost"), schedlock.ErrLost)
	f.Lost("orders", clitest.Order("1"))
	space, err := keyspace.New(f.Prefix, "test")
	require.NoError(t, err)
	ahead := record.Clock{Owner: "web-8", AtMS: time.Now().Add(3 * time.Hour).UnixMilli()}.Encode()
	for key, value := range map[string]string{space.Queue(keyspace.Semaphore, "charge").Requests + "light/by-hand": "", space.Clock(int64(s.Lease())): ahead} {
		_, err = f.Etcd.Client().Put(ctx, key, value, clientv3.WithLease(s.Lease()))
		require.NoError(t, err)
	}
	sem, err := concurrency.NewSemaphore(s, "mail", 1, nil)
	require.NoError(t, err)
	f.Permit(sem.Acquire(ctx))
	require.NoError(t, sem.SetLimit(ctx, 0))
	f.Shell("doctor -N test --slow 1m")
	f.Shell("doctor -N test --slow 1m -o json")
	f.Golden("doctor")
}

// Members stop one by one: what still works is examined, and the exit code says how bad it is.
func TestDoctorHalfDown(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for members that do not answer")
	}
	t.Parallel()
	etcd := embedtest.Start(t, &embedtest.Options{Members: 3})
	f := &clitest.Fixture{T: t, Etcd: etcd, Prefix: "/doctor"}
	leader, err := etcd.WaitLeader(testkit.Context(t))
	require.NoError(t, err)
	order := []int{(leader + 1) % 3, leader, (leader + 2) % 3}
	args := []string{"doctor", "-N", "test", "-o", "json", "--command-timeout", "3s", "--slow", "1m"}
	var r clitest.Result
	healthy := func(when string) { // a busy machine may have the members elect again
		t.Helper()
		for range 10 {
			if r = f.Run(args...); r.Code == 0 {
				return
			}
		}
		require.Zero(t, r.Code, "%s: %s", when, r.Out)
	}
	healthy("all members are up")

	require.NoError(t, etcd.Stop(order[0]))
	healthy("a majority works")
	_, by := findings(t, r)
	require.Contains(t, by["endpoint"], "WARN "+etcd.Endpoints()[order[0]])
	require.Contains(t, by["majority"], "OK a majority answers")
	require.Contains(t, by["session"], "OK a session was opened")

	require.NoError(t, etcd.Stop(order[1]))
	r = f.Run(args...)
	require.Equal(t, exit.Failed, r.Code, r.Out)
	_, by = findings(t, r)
	require.Contains(t, by["majority"], "FAIL a read by a majority failed")
	require.Contains(t, by["members"], "OK 3 voting members", "known by the member that is left")
	require.Empty(t, by["session"], "nothing of the namespace can be read")
	require.Contains(t, by["endpoint"], "OK "+etcd.Endpoints()[order[2]])

	require.NoError(t, etcd.Stop(order[2]))
	r = f.Run(args...)
	require.Equal(t, exit.Unreachable, r.Code, r.Out)
	_, by = findings(t, r)
	require.Contains(t, by["endpoint"], "FAIL no endpoint answers")
}

// Each finding stands alone: what the user may not do is one, and the others are made.
func TestDoctorWithoutPermission(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Start(t, nil)
	f := &clitest.Fixture{T: t, Etcd: etcd, Prefix: "/doctor"}
	ctx := testkit.Context(t)
	require.NoError(t, etcd.AddUser(ctx, "app", "secret", "/doctor/v1/test/"))
	require.NoError(t, etcd.AddUser(ctx, "other", "secret", "/doctor/v1/other/"))
	require.NoError(t, etcd.AddUser(ctx, "clocks", "secret", "/doctor/v1/test/session/", "/doctor/v1/test/clock/"))
	space, err := keyspace.New("/doctor", "test")
	require.NoError(t, err)
	lease, err := etcd.Client().Grant(ctx, 300)
	require.NoError(t, err)
	written := record.Clock{Owner: "web-7", AtMS: time.Now().UnixMilli()}.Encode()
	_, err = etcd.Client().Put(ctx, space.Session(int64(lease.ID)).Alive(), written, clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	require.NoError(t, etcd.EnableAuth(ctx, "root", "root"))
	examine := func(user string) clitest.Result {
		return f.Run("doctor", "-N", "test", "-o", "json", "--slow", "1m", "--user", user)
	}
	r := examine("app:secret")
	require.Zero(t, r.Code, r.Out)
	_, by := findings(t, r)
	require.Contains(t, by["auth"], "OK users are checked")
	require.Contains(t, by["session"], "OK a session was opened")
	require.Contains(t, by["compaction"], "OK ")
	require.Contains(t, by["leases"], "OK ")

	r = examine("other:secret")
	require.Equal(t, exit.Failed, r.Code, r.Out)
	_, by = findings(t, r)
	require.Contains(t, by["endpoint"], "OK ")
	require.Contains(t, by["majority"], "WARN may not read")
	require.Contains(t, by["session"], "FAIL no session")
	require.Contains(t, by["sessions"], "WARN live sessions")
	require.Contains(t, by["queues"], "WARN not examined")

	_, by = findings(t, examine("clocks:secret"))
	require.Contains(t, by["clocks"], "NOTE 1 clock is not known: of 1 session,", "it may read the sessions")

	r = f.Run("doctor", "-N", "test", "-o", "json", "--slow", "1m")
	require.Equal(t, exit.Failed, r.Code, r.Out)
	all, by := findings(t, r)
	require.Contains(t, by["auth"], "FAIL users are checked, and no user is given")
	require.Empty(t, by["session"], "no user has been asked for")
	require.NotContains(t, all, "The user may not")

	r = examine("app:wrong")
	require.Equal(t, exit.Failed, r.Code, r.Out)
	_, by = findings(t, r)
	require.Contains(t, by["connection"], "FAIL etcd at ")
}

func TestDoctorNoSpace(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Start(t, nil)
	f := &clitest.Fixture{T: t, Etcd: etcd, Prefix: "/doctor"}
	require.NoError(t, etcd.SetNoSpace(testkit.Context(t), true))
	r := f.Run("doctor", "-N", "test", "-o", "json", "--slow", "1m")
	require.Equal(t, exit.Failed, r.Code, r.Out)
	_, by := findings(t, r)
	require.Contains(t, by["alarm"], "FAIL NOSPACE, raised by member ")
	require.NoError(t, etcd.SetNoSpace(testkit.Context(t), false))
}

func TestDoctorInterrupted(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(exit.Interrupted{Signal: syscall.SIGINT})
	require.Equal(t, 130, f.RunWith(ctx, "doctor", "-N", "test").Code)
}

// A job of a live process that no process starts is a finding; one that is paused, or that was just resumed, is none.
func TestDoctorOfAJobThatIsNotStarted(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx := testkit.Context(t)
	sess := f.Session("web-7")
	finds := func() string {
		t.Helper()
		_, by := findings(t, f.Run("doctor", "-N", "test", "-o", "json", "--slow", "1m"))
		require.Contains(t, by["jobs"], "OK 1 job\n")
		return by["jobs"]
	}
	start := func(now time.Time) {
		t.Helper()
		l, err := schedlock.New(sess, &schedlock.Options{Now: func() time.Time { return now }})
		require.NoError(t, err)
		_, err = l.Do(ctx, "invoices", clitest.Nothing, schedlock.Every(time.Minute))
		require.NoError(t, err)
	}
	start(time.Now().Add(-2 * time.Minute))
	require.Contains(t, finds(), "job invoices: no process has started it since its tick of ")
	l, err := schedlock.New(sess, nil)
	require.NoError(t, err)
	require.NoError(t, l.Pause(ctx, "invoices", "moving"))
	require.NotContains(t, finds(), "no process has started it")
	require.NoError(t, l.Resume(ctx, "invoices"))
	require.NotContains(t, finds(), "no process has started it", "it was just resumed")
	start(time.Now())
	require.NotContains(t, finds(), "no process has started it")
}

// The clock of a process that writes while doctor listens is compared, in either direction; of one that writes nothing doctor
// says that its clock is not known, and not that it agrees.
func TestDoctorClocks(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx, cancel := context.WithCancel(testkit.Context(t))
	defer cancel()
	space, err := keyspace.New(f.Prefix, "test")
	require.NoError(t, err)
	f.Session("web-7")
	slow := f.Session("web-8")
	_, by := findings(t, f.Run("doctor", "-N", "test", "-o", "json", "--slow", "1m"))
	require.Equal(t, "NOTE 2 clocks are not known: of 2 sessions, 2 wrote nothing to compare in 2s\n", by["clocks"])
	client := f.Etcd.NewClient(t, nil)
	go func() {
		for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
			behind := record.Clock{Owner: "web-8", AtMS: time.Now().Add(-time.Hour).UnixMilli()}.Encode()
			_, _ = client.Put(ctx, space.Session(int64(slow.Lease())).Alive(), behind, clientv3.WithIgnoreLease())
		}
	}()
	_, by = findings(t, f.Run("doctor", "-N", "test", "-o", "json", "--slow", "1m"))
	require.Regexp(t, `WARN the clock of web-8 is behind this machine's by (59m59|1h0m\d+)s\nNOTE 1 clock is not known: of 2 sessions, 1 wrote nothing`, by["clocks"])
}

// Of a namespace in which much changes doctor receives a part, however long it would listen (A307 in
// internal/proof/tested-failures.md).
func TestDoctorClocksOfABusyNamespace(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx, cancel := context.WithTimeout(testkit.Context(t), testkit.Soon)
	space, err := keyspace.New(f.Prefix, "test")
	require.NoError(t, err)
	f.Session("web-7")
	client := f.Etcd.NewClient(t, nil)
	var writes sync.WaitGroup
	writes.Go(func() {
		pace := time.NewTicker(200 * time.Millisecond)
		defer pace.Stop()
		for large := strings.Repeat("x", 1<<20); ctx.Err() == nil; <-pace.C {
			_, _ = client.Put(ctx, space.Root()+"by-hand", large)
		}
	})
	defer writes.Wait()
	defer cancel()
	for took := "in 2s;"; strings.Contains(took, "in 2s;"); { // etcd may be too busy for a write in so long
		require.NoError(t, ctx.Err(), "doctor listens for all of its time")
		_, by := findings(t, f.Run("doctor", "-N", "test", "-o", "json", "--slow", "1m"))
		took = by["clocks"]
		require.Contains(t, took, "NOTE 1 clock is not known: of 1 session, 1 wrote nothing to compare in ")
	}
}
