package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/doctor"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/schedlock"
)

func TestDoctor(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.also = []pattern{ // a cluster of the user's has any number of revisions
		{regexp.MustCompile(`(OK|WARN)  compaction: .*\n(  Each acquire .*\n)?`), "OK  compaction: fewer than 200000 revisions are kept\n"},
		{regexp.MustCompile(`"level":"(OK|WARN)","check":"compaction",[^}]*`), `"level":"OK","check":"compaction","text":"fewer than 200000 revisions are kept"`},
	}
	ctx := testkit.Context(t)
	f.shell("doctor --slow 1m")
	f.shell("doctor -N test --slow 1m")
	s := f.session("web-7")
	f.crowd("charge")
	l := f.process("web-7")
	_, err := l.Do(ctx, "invoices", nothing, schedlock.Tick(tick(0)))
	require.NoError(t, err)
	dies := f.session("web-9")
	other, err := schedlock.New(dies, nil)
	require.NoError(t, err)
	_, done := f.active(other, "sweep", schedlock.Tick(tick(0)))
	_, err = f.etcd.Client().Revoke(ctx, dies.Lease())
	require.NoError(t, err)
	require.ErrorIs(t, testkit.Got(t, done, "it is lost"), schedlock.ErrLost)
	f.lost("orders", order("1"))
	space, err := keyspace.New(f.prefix, "test")
	require.NoError(t, err)
	ahead := record.Clock{Owner: "web-8", AtMS: time.Now().Add(3 * time.Hour).UnixMilli()}.Encode()
	for key, value := range map[string]string{space.Queue(keyspace.Semaphore, "charge").Requests + "light/by-hand": "", space.Clock(1): ahead} {
		_, err = f.etcd.Client().Put(ctx, key, value, clientv3.WithLease(s.Lease()))
		require.NoError(t, err)
	}
	sem, err := concurrency.NewSemaphore(s, "mail", 1, nil)
	require.NoError(t, err)
	f.permit(sem.Acquire(ctx))
	require.NoError(t, sem.SetLimit(ctx, 0))
	f.shell("doctor -N test --slow 1m")
	f.shell("doctor -N test --slow 1m -o json")
	f.golden("doctor")
}

// findings are those of one execution, by their check.
func findings(t *testing.T, r result) (all string, by map[string]string) {
	t.Helper()
	var got struct {
		schema
		Findings []finding
	}
	require.NoError(t, json.Unmarshal([]byte(r.out), &got), "%s%s", r.out, r.err)
	require.Equal(t, "etcdkit.doctor/v1", got.Schema)
	by = map[string]string{}
	for _, f := range got.Findings {
		by[f.Check] += fmt.Sprintf("%s %s\n", f.Level, f.Text)
	}
	return r.out, by
}

// Members stop one by one: what still works is examined, and the exit code says how bad it is.
func TestDoctorHalfDown(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for members that do not answer")
	}
	t.Parallel()
	etcd := embedtest.Start(t, &embedtest.Options{Members: 3})
	f := &fixture{t: t, etcd: etcd, prefix: "/doctor"}
	leader, err := etcd.WaitLeader(testkit.Context(t))
	require.NoError(t, err)
	order := []int{(leader + 1) % 3, leader, (leader + 2) % 3}
	args := []string{"doctor", "-N", "test", "-o", "json", "--command-timeout", "3s", "--slow", "1m"}
	var r result
	healthy := func(when string) { // a busy machine may have the members elect again
		t.Helper()
		for range 10 {
			if r = f.run(args...); r.code == 0 {
				return
			}
		}
		require.Zero(t, r.code, "%s: %s", when, r.out)
	}
	healthy("all members are up")

	require.NoError(t, etcd.Stop(order[0]))
	healthy("a majority works")
	_, by := findings(t, r)
	require.Contains(t, by["endpoint"], "WARN "+etcd.Endpoints()[order[0]])
	require.Contains(t, by["majority"], "OK a majority answers")
	require.Contains(t, by["session"], "OK a session was opened")

	require.NoError(t, etcd.Stop(order[1]))
	r = f.run(args...)
	require.Equal(t, exitFailed, r.code, r.out)
	_, by = findings(t, r)
	require.Contains(t, by["majority"], "FAIL a read by a majority failed")
	require.Contains(t, by["members"], "OK 3 voting members", "known by the member that is left")
	require.Empty(t, by["session"], "nothing of the namespace can be read")
	require.Contains(t, by["endpoint"], "OK "+etcd.Endpoints()[order[2]])

	require.NoError(t, etcd.Stop(order[2]))
	r = f.run(args...)
	require.Equal(t, exitUnreachable, r.code, r.out)
	_, by = findings(t, r)
	require.Contains(t, by["endpoint"], "FAIL no endpoint answers")
}

// Each finding stands alone: what the user may not do is one, and the others are made.
func TestDoctorWithoutPermission(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Start(t, nil)
	f := &fixture{t: t, etcd: etcd, prefix: "/doctor"}
	ctx := testkit.Context(t)
	require.NoError(t, etcd.AddUser(ctx, "app", "secret", "/doctor/v1/test/"))
	require.NoError(t, etcd.AddUser(ctx, "other", "secret", "/doctor/v1/other/"))
	require.NoError(t, etcd.EnableAuth(ctx, "root", "root"))
	doctor := func(user string) result {
		return f.run("doctor", "-N", "test", "-o", "json", "--slow", "1m", "--user", user)
	}
	r := doctor("app:secret")
	require.Zero(t, r.code, r.out)
	_, by := findings(t, r)
	require.Contains(t, by["auth"], "OK users are checked")
	require.Contains(t, by["session"], "OK a session was opened")
	require.Contains(t, by["compaction"], "OK ")
	require.Contains(t, by["leases"], "OK ")

	r = doctor("other:secret")
	require.Equal(t, exitFailed, r.code, r.out)
	_, by = findings(t, r)
	require.Contains(t, by["endpoint"], "OK ")
	require.Contains(t, by["majority"], "WARN may not read")
	require.Contains(t, by["session"], "FAIL no session")
	require.Contains(t, by["sessions"], "WARN live sessions")
	require.Contains(t, by["queues"], "WARN not examined")

	r = f.run("doctor", "-N", "test", "-o", "json", "--slow", "1m")
	require.Equal(t, exitFailed, r.code, r.out)
	all, by := findings(t, r)
	require.Contains(t, by["auth"], "FAIL users are checked, and no user is given")
	require.Empty(t, by["session"], "no user has been asked for")
	require.NotContains(t, all, "The user may not")

	r = doctor("app:wrong")
	require.Equal(t, exitFailed, r.code, r.out)
	_, by = findings(t, r)
	require.Contains(t, by["connection"], "FAIL etcd at ")
}

func TestDoctorNoSpace(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Start(t, nil)
	f := &fixture{t: t, etcd: etcd, prefix: "/doctor"}
	require.NoError(t, etcd.SetNoSpace(testkit.Context(t), true))
	r := f.run("doctor", "-N", "test", "-o", "json", "--slow", "1m")
	require.Equal(t, exitFailed, r.code, r.out)
	_, by := findings(t, r)
	require.Contains(t, by["alarm"], "FAIL NOSPACE, raised by member ")
	require.NoError(t, etcd.SetNoSpace(testkit.Context(t), false))
}

// etcd is asked whether it still has an old revision.
func TestDoctorCompaction(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Start(t, nil)
	ctx := testkit.Context(t)
	a := &app{}
	a.etcd.prefix = "/doctor"
	d := &examination{app: a, client: etcd.Client(), old: 10}
	require.Equal(t, levelOK, d.compaction(ctx)[0].Level, "there are not so many")
	var at int64
	for range 20 {
		resp, err := etcd.Client().Put(ctx, "/doctor/x", "")
		require.NoError(t, err)
		at = resp.Header.Revision
	}
	require.Equal(t, levelWarn, d.compaction(ctx)[0].Level)
	_, err := etcd.Client().Compact(ctx, at-10)
	require.NoError(t, err)
	require.Equal(t, levelWarn, d.compaction(ctx)[0].Level, "the revision that was compacted to is kept")
	_, err = etcd.Client().Compact(ctx, at-9)
	require.NoError(t, err)
	require.Equal(t, levelOK, d.compaction(ctx)[0].Level)
}

func TestDoctorInterrupted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(interrupted{syscall.SIGINT})
	require.Equal(t, 130, f.runWith(ctx, "doctor", "-N", "test").code)
}

// A check that runs out of time says how far it came, and is no failure of etcd's.
func TestDoctorCutShort(t *testing.T) {
	over, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	require.Equal(t, levelWarn, cutShort(over, 7, "queues", over.Err())[0].Level)
	require.Equal(t, "only 7 queues could be examined in time", cutShort(over, 7, "queues", over.Err())[0].Text)
	require.Equal(t, levelFail, cutShort(over, 0, "queues", over.Err())[0].Level, "etcd has not answered at all")
	require.Equal(t, levelFail, cutShort(t.Context(), 7, "queues", errors.New("x"))[0].Level)
}

func TestVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		got  []finding
		want doctor.Level
		text string
	}{
		"renewed":              {renewal(5*time.Second, 5*time.Second), levelOK, "answered"},
		"an older renewal":     {renewal(4*time.Second, 5*time.Second), levelFail, "less than the granted"},
		"TTL as asked":         {granted(5*time.Second, 5*time.Second), levelOK, ""},
		"TTL longer":           {granted(5*time.Second, 8*time.Second), levelWarn, "8s"},
		"TTL shorter":          {granted(5*time.Second, 4*time.Second), levelFail, "4s"},
		"clocks agree":         {skew("web-7", -30*time.Second, true), "", ""},
		"a clock ahead":        {skew("web-7", 10*time.Second, false), levelWarn, "ahead of this machine's by 10s or more"},
		"a clock behind":       {skew("web-7", -2*time.Minute, true), levelWarn, "behind this machine's by 1m0s or more"},
		"a session's old time": {skew("web-7", -2*time.Hour, false), "", ""},
		"no run lost":          {lost("j", []schedlock.Record{{State: schedlock.RunDone}}), "", ""},
		"a run lost":           {lost("j", []schedlock.Record{{State: schedlock.RunDone}, {State: schedlock.RunLost}}), levelWarn, "1 of 2"},
		"unknown and refused":  {unknown("s", 10, 2, 3), levelWarn, "2 of 10"},
		"unknown and repeated": {unknown("s", 10, 0, 3), levelOK, "3 of 10"},
	} {
		var worst finding
		for _, f := range c.got {
			if worst.Level == "" || f.Level == levelFail || f.Level == levelWarn && worst.Level == levelOK {
				worst = f
			}
		}
		require.Equal(t, c.want, worst.Level, name)
		require.Contains(t, worst.Text, c.text, name)
		require.Equal(t, worst.Level == levelWarn || worst.Level == levelFail, worst.Advice != "", "%s: a finding says what to do", name)
		require.False(t, strings.HasSuffix(worst.Text, "."), name)
	}
}

// K32: a crontab line that no process starts is a finding, as a period is, and a tick within a cooldown is none.
func TestDueOf(t *testing.T) {
	t.Parallel()
	at := func(hours float64) time.Time { return time.Unix(0, 0).Add(time.Duration(hours * float64(time.Hour))) }
	hourly := "AtMost 1h0m0s, AtLeast 0s, Retries 0, Every 1h0m0s"
	for name, c := range map[string]struct {
		settings      string
		last, resumed float64
		plan          *schedlock.Plan
		want          float64
	}{
		"nothing is known":               {"", 10, 0, nil, 0},
		"a period":                       {hourly, 10, 0, nil, 11},
		"a period, resumed":              {hourly, 10, 12.5, nil, 13},
		"a period, never run":            {hourly, 0, 0, nil, 0},
		"a period, and a cooldown":       {strings.Replace(hourly, "AtLeast 0s", "AtLeast 1h30m0s", 1), 10, 0, nil, 12},
		"a plan":                         {"", 10, 0, &schedlock.Plan{Due: at(34), Live: true}, 34},
		"a plan, never run":              {"", 0, 0, &schedlock.Plan{Due: at(34), Live: true}, 34},
		"a plan, resumed":                {"", 10, 35, &schedlock.Plan{Due: at(34), Live: true}, 0},
		"a plan that no process has":     {"", 10, 0, &schedlock.Plan{Due: at(34)}, 0},
		"a plan by calls":                {"", 10, 0, &schedlock.Plan{Due: at(34), Called: true, Late: time.Hour}, 35},
		"a plan by calls, two weeks ago": {"", 10, 0, &schedlock.Plan{Due: at(-300), Called: true}, 0},
	} {
		st := schedlock.Status{Settings: c.settings, Plan: c.plan}
		if c.last != 0 {
			st.Last = &schedlock.Record{Tick: at(c.last), Start: at(c.last).Add(time.Second)}
		}
		var resumed, want time.Time
		if c.resumed != 0 {
			resumed = at(c.resumed)
		}
		if c.want != 0 {
			want = at(c.want)
		}
		require.True(t, want.Equal(dueOf(st, resumed, at(40))), "%s: %v", name, dueOf(st, resumed, at(40)))
	}
}

// A job of a live process that no process starts is a finding; one that is paused, or that was just resumed, is none.
func TestDoctorOfAJobThatIsNotStarted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := testkit.Context(t)
	l := f.process("web-7")
	_, err := l.Do(ctx, "invoices", nothing, schedlock.Every(time.Minute))
	require.NoError(t, err)
	a := &app{}
	a.etcd.prefix, a.etcd.namespace = f.prefix, "test"
	now := time.Now()
	d := &examination{app: a, client: f.etcd.Client(), now: func() time.Time { return now }}
	finds := func() string {
		t.Helper()
		found, err := d.job(ctx, l, "invoices")
		require.NoError(t, err)
		return fmt.Sprint(found)
	}
	require.NotContains(t, finds(), "no process has started it")
	now = now.Add(2 * time.Minute)
	require.Contains(t, finds(), "job invoices: no process has started it since its tick of ")
	require.NoError(t, l.Pause(ctx, "invoices", "moving"))
	require.NotContains(t, finds(), "no process has started it")
	require.NoError(t, l.Resume(ctx, "invoices"))
	now = time.Now()
	require.NotContains(t, finds(), "no process has started it", "it was just resumed")
}
