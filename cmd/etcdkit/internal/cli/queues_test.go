package cli_test

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/schedlock"
)

func TestLs(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	f.Shell("ls")
	f.Crowd("charge")
	ctx := testkit.Context(t)
	s := f.Session("web-7")
	m, err := concurrency.NewMutex(s, "report")
	require.NoError(t, err)
	f.Permit(m.Lock(ctx))
	f.Shell("ls")
	f.Shell("ls -o json")
	f.Shell("ls -N test")
	f.Shell("ls -N test -o json")
	f.Shell("ls -N other")
	f.Golden("ls")
}

func TestShow(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	f.Crowd("charge")
	f.Shell("show -N test charge")
	f.Shell("show -N test semaphore/charge -o json")
	f.Shell("show -N test nothing")
	f.Shell("show -N test queue/charge")
	f.Shell("show charge")
	f.Shell("show -N test rate/mail")
	f.Shell("show -N test rate/mail --watch")
	f.Golden("show")
}

// Each state of a stream has its time.
func TestShowWatch(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	for _, format := range []string{"", " -o json"} {
		m, err := concurrency.NewMutex(f.Session("web-7"), "report")
		require.NoError(t, err)
		p := f.Permit(m.Lock(testkit.Context(t)))
		f.Shows(p.Token(), "4711")
		f.Stream("show -N test mutex/report -w"+format, func(interrupt func()) []clitest.Act {
			return []clitest.Act{clitest.On("report", func() { assert.NoError(t, p.Release(testkit.Context(t))) }), clitest.On("report", interrupt)}
		})
	}
	f.Golden("show-watch")
}

// Of a mutex that no request uses etcd has nothing, and a limiter without a total is followed by its keys: show says so.
func TestShowOfNothing(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	r := f.Run("show", "-N", "test", "mutex/reprot", "-o", "json")
	require.Zero(t, r.Code)
	require.Contains(t, r.Out, `"stored":false`)
	require.Contains(t, r.Err, "mutex/reprot: etcd has nothing of that name")
	for name, says := range map[string]string{"limiter/api": "no total is stored", "semaphore/chrage": "it is followed from its first request on"} {
		f.Stream("show -w -N test "+name, func(interrupt func()) []clitest.Act { return []clitest.Act{clitest.On(name, interrupt)} })
		require.Contains(t, f.Script.String(), says)
	}
}

// Values that cannot be read are shown as what they are.
func TestDamagedValues(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx := testkit.Context(t)
	space := engine.Of(f.Session("web-7")).Space()
	for _, key := range []string{space.Job("sweep").Pause(), space.Queue(keyspace.Semaphore, "charge").Limit} {
		_, err := f.Etcd.Client().Put(ctx, key, "garbage")
		require.NoError(t, err)
	}
	require.Regexp(t, `(?m)^sweep +paused .*by a record that cannot be read$`, f.Run("jobs", "-N", "test").Out)
	require.Contains(t, f.Run("doctor", "-N", "test").Out, "job sweep: paused, and the record of that cannot be read")
	for _, verb := range []string{"limit", "show"} {
		require.Contains(t, f.Run(verb, "-N", "test", "semaphore/charge").Out, "not known (the value of "+space.Queue(keyspace.Semaphore, "charge").Limit+" is damaged", verb)
	}
	for _, key := range []string{space.Limiter("api").Default, space.Queue(keyspace.Rate, "mail").Limit} {
		_, err := f.Etcd.Client().Put(ctx, key, "garbage")
		require.NoError(t, err)
	}
	f.Shows(f.Prefix, "/etcdkit/")
	for _, line := range []string{"limit -N test semaphore/charge", "show -N test limiter/api", "show -N test rate/mail", "top -N test"} {
		f.Shell(line)
		f.Shell(line + " -o json")
	}
	f.Golden("unreadable")
	l := f.Locker("web-8")
	_, err := l.Do(ctx, "invoices", clitest.Nothing, schedlock.Tick(clitest.Tick(0)))
	require.NoError(t, err)
	for _, foreign := range []string{"2099-11-25T20:00:00.000Zzz", "by-hand"} {
		_, err := f.Etcd.Client().Put(ctx, space.Job("invoices").Runs()+foreign, "")
		require.NoError(t, err)
	}
	require.Regexp(t, "(?m)^invoices .* done ", f.Run("jobs", "-N", "test").Out, "foreign keys hide no run")
	require.Contains(t, f.Run("doctor", "-N", "test").Out, "job invoices: 2 foreign keys")
	r := f.Run("limit", "-N", "test", "semaphore/charge", "5")
	require.Equal(t, exit.Failed, r.Code)
	require.Contains(t, r.Err, "delete the queue's key 'limit' with etcdctl")
}

// A name that two kinds have is no name, and says which to choose from.
func TestShowAmbiguous(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx := testkit.Context(t)
	s := f.Session("web-7")
	m, err := concurrency.NewMutex(s, "x")
	require.NoError(t, err)
	f.Permit(m.Lock(ctx))
	sm, err := concurrency.NewSemaphore(s, "x", 3, nil)
	require.NoError(t, err)
	f.Permit(sm.Acquire(ctx))
	r := f.Run("show", "-N", "test", "x")
	require.Equal(t, exit.Usage, r.Code)
	require.Contains(t, r.Err, "semaphore/x, mutex/x")
	require.Contains(t, f.Run("show", "-N", "test", "mutex/x").Out, "limit 1, used 1")
	require.Contains(t, f.Run("show", "-N", "test", "semaphore/x").Out, "limit 3, used 1")
}

// Texts of other processes do not steer the operator's terminal.
func TestTextsFromEtcdAreEscaped(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	sm, err := concurrency.NewSemaphore(f.Session("web-7"), "charge", 3, nil)
	require.NoError(t, err)
	const nasty = "\x1b[2J\x1b]0;owned\x07\nfake row\t\u202e\u009b31m"
	f.Permit(sm.Acquire(testkit.Context(t), concurrency.Note(nasty)))
	r := f.Run("show", "-N", "test", "charge")
	require.Zero(t, r.Code, r.Err)
	require.Len(t, strings.Split(strings.TrimSpace(r.Out), "\n"), 3, r.Out)
	require.False(t, strings.ContainsAny(r.Out, "\x1b\x07\u202e\u009b"), "%q", r.Out)
	r = f.Run("show", "-N", "test", "charge", "-o", "json")
	var got struct{ Holders []struct{ Note string } }
	require.NoError(t, json.Unmarshal([]byte(strings.NewReplacer(`"token":"`, `"x":"`, `"lease":"`, `"y":"`, `"revision":"`, `"z":"`).Replace(r.Out)), &got))
	require.Equal(t, nasty, got.Holders[0].Note)
	require.False(t, strings.ContainsAny(r.Out, "\x1b\x07\u202e\u009b"), "%q", r.Out)
}

// Names that differ are shown so, and no text looks like the columns beside it.
func TestCellsFromEtcdAreTheirOwn(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	s := f.Session("x  1  3s  1s  12:00:00")
	for _, name := range []string{"charge", "charge\u3164"} {
		sm, err := concurrency.NewSemaphore(s, name, 3, nil)
		require.NoError(t, err)
		f.Permit(sm.Acquire(testkit.Context(t)))
	}
	r := f.Run("ls", "-N", "test")
	require.Contains(t, r.Out, `semaphore/charge\u3164`)
	r = f.Run("show", "-N", "test", "charge")
	require.Contains(t, r.Out, `x \u00201 \u00203s \u00201s \u002012:00:00`)
}

func TestLimit(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	f.Crowd("charge")
	s := f.Session("web-7")
	l, err := concurrency.NewKeyedLimiter(s, "api", 5, &concurrency.KeyedLimiterOptions{Total: 200})
	require.NoError(t, err)
	ctx := testkit.Context(t)
	f.Permit(l.Key("tenant-7").Acquire(ctx))
	f.Shell("limit -N test charge")
	f.Shell("limit -N test charge 3")
	f.Shell("limit -N test charge 3 -o json")
	f.Shell("limit -N test charge 0")
	f.Shell("limit -N test charge -- -0.0")
	f.Shell("limit -N test charge 0 --yes")
	f.Shell("limit -N test limiter/api")
	f.Shell("limit -N test limiter/api 6")
	f.Shell("limit -N test limiter/api --total")
	f.Shell("limit -N test limiter/api --total -o json")
	f.Shell("limit -N test limiter/api --total 300")
	f.Shell("limit -N test limiter/api/tenant-7 20")
	f.Shell("limit -N test limiter/api/tenant-7 --clear")
	f.Shell("limit -N test limiter/api/tenant-7 20")
	f.Shell("limit -N test limiter/api 0 --yes")
	f.Shell("limit -N test limiter/api/tenant-7 --clear")
	f.Shell("limit -N test limiter/api/tenant-7 --clear --yes")
	f.Shell("limit -N test rate/mail 50 --burst 10 --create")
	f.Shell("limit -N test rate/mail")
	f.Shell("limit -N test rate/mail 60")
	f.Shell("limit -N test rate/mail --burst 5")
	f.Shell("limit -N test rate/mail -o json")
	f.Shell("limit -N test semaphore/chrage 3")
	f.Shell("limit -N test semaphore/new 3 --create")
	f.Shell("limit -N test charge three")
	f.Shell("limit -N test charge -- -1")
	f.Shell("limit -N test mutex/report 2")
	f.Golden("limit")
}

func TestElections(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx := testkit.Context(t)
	f.Shell("elections -N test")
	el, err := concurrency.NewElection(f.Session("web-7"), "shard-7")
	require.NoError(t, err)
	term := f.Permit(el.Campaign(ctx, concurrency.Note("10.0.0.7:8080")))
	f.Shows(term.Token(), "4711")
	f.Shell("elections -N test")
	f.Shell("elections -N test -o json")
	f.Shell("elections step-down -N test shard-7 --reason 'new release'")
	f.Shell("elections step-down -N test shard-7 --yes --reason 'new release'")
	testkit.Closed(t, term.StopRequested().Done(), "it is asked")
	f.Shell("elections step-down -N test shard-7 --token 4711 --yes")
	f.Shell("elections step-down -N test shard-7 --token 4705 --yes")
	f.Shell("elections step-down -N test shard-8 --yes")
	f.Shell("elections step-down -N test semaphore/shard-7 --yes")
	f.Golden("elections")
}

// A limiter is shown with its keys, the one with the oldest wait first, and a key without a total as what it is: its
// holders hold, and are asked before they are ended.
func TestShowOfALimiter(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx := testkit.Context(t)
	s := f.Session("web-7")
	l, err := concurrency.NewKeyedLimiter(s, "api", 2, nil)
	require.NoError(t, err)
	f.Permit(l.Key("tenant-1").Acquire(ctx))
	p := f.Permit(l.Key("tenant-7").Acquire(ctx, concurrency.Weight(2)))
	f.Shows(p.Token(), "4711")
	waits, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { _, _ = l.Key("tenant-7").Acquire(waits) }()
	f.Shows(f.Waiter(l.Key("tenant-7")).Token, "4712")
	require.NoError(t, l.Key("tenant-9").SetLimit(ctx, 0))
	_, err = f.Etcd.Client().Put(ctx, engine.Of(s).Space().Limiter("api").Key("tenant-1").Requests+"foreign", "")
	require.NoError(t, err)
	f.Shell("show -N test limiter/api")
	f.Shell("show -N test limiter/api --keys 1")
	f.Shell("show -N test limiter/api -o json")
	f.Shell("show -N test limiter/api/tenant-7")
	f.Shell("show -N test limiter/apy")
	f.Shell("top -N test")
	_, err = f.Etcd.Client().Put(ctx, engine.Of(s).Space().Limiter("api").Key("tenant-9").Requests+"foreign", "")
	require.NoError(t, err)
	examined := f.Run("doctor", "-N", "test").Out
	require.Contains(t, examined, "queues: limiter/api/tenant-1: 1 foreign key")
	require.Contains(t, examined, "queues: limiter/api/tenant-9: 1 foreign key")
	require.Regexp(t, `queues: limiter/api/tenant-9: paused by a limit of 0, 0 wait\n.*'etcdkit limit limiter/api/tenant-9 N'`, examined)
	go func() {
		<-p.StopRequested().Done()
		_ = p.Release(ctx)
	}()
	f.Shell("evict -N test limiter/api/tenant-7 4711 --yes")
	require.ErrorIs(t, p.Err(), concurrency.ErrReleased)
	require.NotErrorIs(t, p.Err(), concurrency.ErrEvicted)
	_, err = f.Etcd.Client().Put(ctx, engine.Of(s).Space().Limiter("bare").Key("acme").Limit, record.Limit{Limit: 2}.Encode())
	require.NoError(t, err)
	f.Shell("show -N test limiter/bare")
	f.Shell("show -N test limiter/bare -o json")
	f.Golden("show-limiter")
}

// Of a key of a limiter with a total, show says which requests are admitted at the key and wait for the total.
func TestShowOfAKey(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx, cancel := context.WithCancel(testkit.Context(t))
	defer cancel()
	l, err := concurrency.NewKeyedLimiter(f.Session("web-7"), "api", 2, &concurrency.KeyedLimiterOptions{Total: 1})
	require.NoError(t, err)
	acme := l.Key("acme")
	f.Permit(acme.Acquire(ctx, concurrency.MaxHold(time.Hour)))
	for n := range 2 { // one waits for the total, and the next one for the key
		go func() { _, _ = acme.Acquire(ctx, concurrency.ID(strconv.Itoa(n)), concurrency.Note("for a test")) }()
		require.Eventually(t, func() bool { st, err := acme.Status(ctx); return err == nil && len(st.Waiters) == n+1 }, testkit.Soon, 5*time.Millisecond)
	}
	out := f.Run("show", "-N", "test", "limiter/api/acme").Out
	require.Regexp(t, `(?m)^holds +\d`, out)
	require.Regexp(t, `(?m)^waits for the total +\d`, out)
	require.Regexp(t, `(?m)^waits 1st +\d`, out)
	require.NotContains(t, out, "2nd")
	st, err := acme.Status(ctx)
	require.NoError(t, err)
	for i, r := range slices.Concat(st.Holders, st.Waiters) {
		f.Shows(r.Token, strconv.Itoa(4711+i))
	}
	f.Shell("show -N test limiter/api/acme -o json")
	f.Golden("show-key")
}

// The shares of a rate are shown with the processes that have them.
func TestShowOfARate(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	l, err := concurrency.NewRateLimiter(f.Session("web-7"), "mail", concurrency.Rate{PerSecond: 10, Burst: 1}, nil)
	require.NoError(t, err)
	require.NoError(t, l.Wait(testkit.Context(t)))
	f.Shell("show -N test rate/mail -o json")
	f.Golden("show-rate")
}

// A257: a default limit that is stored for a new limiter suits its programs: those without a total, or, if the total is
// stored already, those with it.
func TestLimitOfANewLimiter(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	for name, c := range map[string]struct {
		stores []string
		total  int
	}{
		"alone":        {[]string{"5"}, 0},
		"with a total": {[]string{"9 --total", "5"}, 9},
	} {
		limiter := "api" + strconv.Itoa(c.total)
		for _, n := range c.stores {
			r := f.Run(strings.Fields("limit -N test limiter/" + limiter + " " + n + " --create")...)
			require.Zero(t, r.Code, "%s: %s", name, r.Err)
		}
		l, err := concurrency.NewKeyedLimiter(f.Session("web-"+limiter), limiter, 5, &concurrency.KeyedLimiterOptions{Total: c.total})
		require.NoError(t, err)
		f.Permit(l.Key("a").Acquire(testkit.Context(t)))
	}
}

// A list of which etcd has nothing is empty, and no null, of which a script cannot take the first one; standard error says
// what else the reason may be (A308 in internal/proof/tested-failures.md).
func TestListsOfNothing(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	for line, says := range map[string]string{
		"ls": "etcd has no namespace below --prefix", "ls -N test": "etcd has no queue in namespace test", "jobs -N test": "etcd has no job in namespace test",
		"requests -N test": "etcd has no request in namespace test", "elections -N test": "etcd has no election with a candidate in namespace test", "top -N test": "",
	} {
		r := f.Run(append(strings.Fields(line), "-o", "json")...)
		require.Zero(t, r.Code, "%s: %s", line, r.Err)
		require.NotContains(t, r.Out, "null", line)
		require.Contains(t, r.Out, "[]", line)
		require.Contains(t, r.Err, says, line)
	}
}
