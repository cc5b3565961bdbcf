package cli

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

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// crowd fills a semaphore with a limit of 2: two holders, and two requests that wait. It returns the
// permits.
func (f *fixture) crowd(name string) (held []*concurrency.Permit) {
	ctx := testkit.Context(f.t)
	owners := []string{"web-7", "web-9", "web-2", "web-3"}
	for i, owner := range owners {
		sm, err := concurrency.NewSemaphore(f.session(owner), name, 2, nil)
		require.NoError(f.t, err)
		if i < 2 {
			held = append(held, f.permit(sm.Acquire(ctx, concurrency.Note("order "+owner), concurrency.ID(owner))))
			f.shows(held[i].Token(), []string{"4711", "4712"}[i])
			continue
		}
		go func() { _, _ = sm.Acquire(ctx) }()
		for st, err := range sm.Watch(ctx) {
			require.NoError(f.t, err)
			if n := len(st.Waiters); n == i-1 {
				f.shows(st.Waiters[n-1].Token, []string{"4713", "4714"}[i-2])
				break
			}
		}
	}
	return held
}

func TestLs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.shell("ls")
	f.crowd("charge")
	ctx := testkit.Context(t)
	s := f.session("web-7")
	m, err := concurrency.NewMutex(s, "report")
	require.NoError(t, err)
	f.permit(m.Lock(ctx))
	f.shell("ls")
	f.shell("ls -o json")
	f.shell("ls -N test")
	f.shell("ls -N test -o json")
	f.shell("ls -N other")
	f.golden("ls")
}

func TestShow(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.crowd("charge")
	f.shell("show -N test charge")
	f.shell("show -N test semaphore/charge -o json")
	f.shell("show -N test nothing")
	f.shell("show -N test queue/charge")
	f.shell("show charge")
	f.shell("show -N test rate/mail")
	f.shell("show -N test rate/mail --watch")
	f.golden("show")
}

// Each state of a stream has its time.
func TestShowWatch(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, format := range []string{"", " -o json"} {
		m, err := concurrency.NewMutex(f.session("web-7"), "report")
		require.NoError(t, err)
		p := f.permit(m.Lock(testkit.Context(t)))
		f.shows(p.Token(), "4711")
		f.stream("show -N test mutex/report -w"+format, func(interrupt func()) []act {
			return []act{{"report", func() { assert.NoError(t, p.Release(testkit.Context(t))) }}, {"report", interrupt}}
		})
	}
	f.golden("show-watch")
}

// Of a mutex that no request uses etcd has nothing, and a limiter without a total is followed by its keys: show says so.
func TestShowOfNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.run("show", "-N", "test", "mutex/reprot", "-o", "json")
	require.Zero(t, r.code)
	require.Contains(t, r.out, `"stored":false`)
	require.Contains(t, r.err, "mutex/reprot: etcd has nothing of that name")
	for name, says := range map[string]string{"limiter/api": "no total is stored", "semaphore/chrage": "it is followed from its first request on"} {
		f.stream("show -w -N test "+name, func(interrupt func()) []act { return []act{{name, interrupt}} })
		require.Contains(t, f.script.String(), says)
	}
}

// Values that cannot be read are shown as what they are.
func TestDamagedValues(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := testkit.Context(t)
	space := engine.Of(f.session("web-7")).Space()
	for _, key := range []string{space.Job("sweep").Pause(), space.Queue(keyspace.Semaphore, "charge").Limit} {
		_, err := f.etcd.Client().Put(ctx, key, "garbage")
		require.NoError(t, err)
	}
	require.Regexp(t, `(?m)^sweep +paused .*by a record that cannot be read$`, f.run("jobs", "-N", "test").out)
	require.Contains(t, f.run("doctor", "-N", "test").out, "job sweep: paused, and the record of that cannot be read")
	for _, verb := range []string{"limit", "show"} {
		require.Contains(t, f.run(verb, "-N", "test", "semaphore/charge").out, "none stored that can be read", verb)
	}
	l := f.process("web-8")
	_, err := l.Do(ctx, "invoices", nothing, schedlock.Tick(tick(0)))
	require.NoError(t, err)
	for _, foreign := range []string{"2099-11-25T20:00:00.000Zzz", "by-hand"} {
		_, err := f.etcd.Client().Put(ctx, space.Job("invoices").Runs()+foreign, "")
		require.NoError(t, err)
	}
	require.Regexp(t, "(?m)^invoices .* done ", f.run("jobs", "-N", "test").out, "foreign keys hide no run")
	require.Contains(t, f.run("doctor", "-N", "test").out, "job invoices: 2 foreign keys")
	r := f.run("limit", "-N", "test", "semaphore/charge", "5")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "delete the queue's key 'limit' with etcdctl")
}

// A name that two kinds have is no name, and says which to choose from.
func TestShowAmbiguous(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := testkit.Context(t)
	s := f.session("web-7")
	m, err := concurrency.NewMutex(s, "x")
	require.NoError(t, err)
	f.permit(m.Lock(ctx))
	sm, err := concurrency.NewSemaphore(s, "x", 3, nil)
	require.NoError(t, err)
	f.permit(sm.Acquire(ctx))
	r := f.run("show", "-N", "test", "x")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, "semaphore/x, mutex/x")
	require.Contains(t, f.run("show", "-N", "test", "mutex/x").out, "limit 1, used 1")
	require.Contains(t, f.run("show", "-N", "test", "semaphore/x").out, "limit 3, used 1")
}

// Texts of other processes do not steer the operator's terminal.
func TestTextsFromEtcdAreEscaped(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	sm, err := concurrency.NewSemaphore(f.session("web-7"), "charge", 3, nil)
	require.NoError(t, err)
	const nasty = "\x1b[2J\x1b]0;owned\x07\nfake row\t\u202e\u009b31m"
	f.permit(sm.Acquire(testkit.Context(t), concurrency.Note(nasty)))
	r := f.run("show", "-N", "test", "charge")
	require.Zero(t, r.code, r.err)
	require.Len(t, strings.Split(strings.TrimSpace(r.out), "\n"), 3, r.out)
	require.False(t, strings.ContainsAny(r.out, "\x1b\x07\u202e\u009b"), "%q", r.out)
	r = f.run("show", "-N", "test", "charge", "-o", "json")
	var got shownQueue
	require.NoError(t, json.Unmarshal([]byte(strings.NewReplacer(`"token":"`, `"x":"`, `"lease":"`, `"y":"`, `"revision":"`, `"z":"`).Replace(r.out)), &got))
	require.Equal(t, nasty, got.Holders[0].Note)
}

func TestLimit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.crowd("charge")
	s := f.session("web-7")
	l, err := concurrency.NewKeyedLimiter(s, "api", 5, &concurrency.KeyedLimiterOptions{Total: 200})
	require.NoError(t, err)
	ctx := testkit.Context(t)
	f.permit(l.Key("tenant-7").Acquire(ctx))
	f.shell("limit -N test charge")
	f.shell("limit -N test charge 3")
	f.shell("limit -N test charge 3 -o json")
	f.shell("limit -N test charge 0")
	f.shell("limit -N test charge -- -0.0")
	f.shell("limit -N test charge 0 --yes")
	f.shell("limit -N test limiter/api")
	f.shell("limit -N test limiter/api 6")
	f.shell("limit -N test limiter/api --total")
	f.shell("limit -N test limiter/api --total -o json")
	f.shell("limit -N test limiter/api --total 300")
	f.shell("limit -N test limiter/api/tenant-7 20")
	f.shell("limit -N test limiter/api/tenant-7 --clear")
	f.shell("limit -N test limiter/api/tenant-7 20")
	f.shell("limit -N test limiter/api 0 --yes")
	f.shell("limit -N test limiter/api/tenant-7 --clear")
	f.shell("limit -N test limiter/api/tenant-7 --clear --yes")
	f.shell("limit -N test rate/mail 50 --burst 10 --create")
	f.shell("limit -N test rate/mail")
	f.shell("limit -N test rate/mail 60")
	f.shell("limit -N test rate/mail --burst 5")
	f.shell("limit -N test rate/mail -o json")
	f.shell("limit -N test semaphore/chrage 3")
	f.shell("limit -N test semaphore/new 3 --create")
	f.shell("limit -N test charge three")
	f.shell("limit -N test charge -- -1")
	f.shell("limit -N test mutex/report 2")
	f.golden("limit")
}

func TestEvict(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	held := f.crowd("charge")
	go func() { // a holder that stops when it is asked
		<-held[0].StopRequested().Done()
		_ = held[0].Release(testkit.Context(t))
	}()
	f.shell("evict -N test charge 4711 --reason 'host is to be replaced'")
	f.shell("evict -N test charge 4711 --yes --reason 'host is to be replaced'")
	f.shell("evict -N test charge 4714 --yes") // the last waiter
	f.shell("evict -N test charge 4712 --yes --wait 100ms")
	require.NoError(t, held[1].Err())
	f.shell("evict -N test charge 4712 --yes --force --reason stuck -o json")
	testkit.Closed(t, held[1].Lost(), "it was evicted")
	require.ErrorIs(t, held[1].Err(), concurrency.ErrEvicted)
	require.ErrorContains(t, held[1].Err(), "stuck")
	f.shell("evict -N test charge 4712 --yes")
	m, err := concurrency.NewMutex(f.session("web-7"), "report")
	require.NoError(t, err)
	f.permit(m.Lock(testkit.Context(t)))
	c := f.etcd.NewClient(t, nil)
	stopped, err := concurrency.NewMutex(testkit.SessionOn(t, c.Client, f.prefix, nil), "report")
	require.NoError(t, err)
	go func() { _, _ = stopped.Lock(testkit.Context(t)) }()
	f.shows(f.waiter(m).Token, "4720")
	c.Cut()
	f.shell("evict -N test mutex/report 4720 --yes --wait 100ms") // its process cannot hear of it
	f.shell("evict -N test mutex/report 4720 --yes --force")
	f.shell("evict -N test charge none --yes")
	f.shell("evict -N test charge 4712 --yes --wait -1s")
	f.golden("evict")
}

// waiter waits for one that waits.
func (f *fixture) waiter(q queue) (waits concurrency.Request) {
	require.Eventually(f.t, func() bool {
		st, err := q.Status(testkit.Context(f.t))
		if err == nil && len(st.Waiters) == 1 {
			waits = st.Waiters[0]
		}
		return waits.Token != 0
	}, testkit.Soon, 5*time.Millisecond, "it waits")
	return waits
}

// A candidate withdraws when it is asked to, and the leader leads on.
func TestEvictACandidate(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	el, err := concurrency.NewElection(f.session("web-7"), "shard-7")
	require.NoError(t, err)
	term := f.permit(el.Campaign(testkit.Context(t)))
	withdrawn := make(chan error, 1)
	go func() {
		other, err := concurrency.NewElection(f.session("web-9"), "shard-7")
		if err == nil {
			_, err = other.Campaign(testkit.Context(t))
		}
		withdrawn <- err
	}()
	token := strconv.FormatInt(f.waiter(election{el}).Token, 10)
	require.Equal(t, 0, f.run("evict", "-N", "test", "election/shard-7", token, "--yes", "--reason", "too old").code)
	require.ErrorIs(t, testkit.Got(t, withdrawn, "it has withdrawn"), concurrency.ErrEvicted)
	require.NoError(t, term.StopRequested().Err())
	require.NoError(t, term.Err())
}

func TestElections(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := testkit.Context(t)
	f.shell("elections -N test")
	el, err := concurrency.NewElection(f.session("web-7"), "shard-7")
	require.NoError(t, err)
	term := f.permit(el.Campaign(ctx, concurrency.Note("10.0.0.7:8080")))
	f.shows(term.Token(), "4711")
	f.shell("elections -N test")
	f.shell("elections -N test -o json")
	f.shell("elections step-down -N test shard-7 --reason 'new release'")
	f.shell("elections step-down -N test shard-7 --yes --reason 'new release'")
	testkit.Closed(t, term.StopRequested().Done(), "it is asked")
	f.shell("elections step-down -N test shard-7 --token 4711 --yes")
	f.shell("elections step-down -N test shard-7 --token 4705 --yes")
	f.shell("elections step-down -N test shard-8 --yes")
	f.shell("elections step-down -N test semaphore/shard-7 --yes")
	f.golden("elections")
}

// A limiter is shown with its keys, the one with the oldest wait first, and a key without a total as what it is: its
// holders hold, and are asked before they are ended.
func TestShowOfALimiter(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := testkit.Context(t)
	s := f.session("web-7")
	l, err := concurrency.NewKeyedLimiter(s, "api", 2, nil)
	require.NoError(t, err)
	f.permit(l.Key("tenant-1").Acquire(ctx))
	p := f.permit(l.Key("tenant-7").Acquire(ctx, concurrency.Weight(2)))
	f.shows(p.Token(), "4711")
	waits, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { _, _ = l.Key("tenant-7").Acquire(waits) }()
	f.shows(f.waiter(l.Key("tenant-7")).Token, "4712")
	require.NoError(t, l.Key("tenant-9").SetLimit(ctx, 0))
	_, err = f.etcd.Client().Put(ctx, engine.Of(s).Space().Limiter("api").Key("tenant-1").Requests+"foreign", "")
	require.NoError(t, err)
	f.shell("show -N test limiter/api")
	f.shell("show -N test limiter/api --keys 1")
	f.shell("show -N test limiter/api -o json")
	f.shell("show -N test limiter/api/tenant-7")
	f.shell("show -N test limiter/apy")
	f.shell("top -N test")
	_, err = f.etcd.Client().Put(ctx, engine.Of(s).Space().Limiter("api").Key("tenant-9").Requests+"foreign", "")
	require.NoError(t, err)
	examined := f.run("doctor", "-N", "test").out
	require.Contains(t, examined, "queues: limiter/api/tenant-1: 1 foreign key")
	require.Contains(t, examined, "queues: limiter/api/tenant-9: 1 foreign key")
	require.Regexp(t, `queues: limiter/api/tenant-9: paused by a limit of 0, 0 wait\n.*'etcdkit limit limiter/api/tenant-9 N'`, examined)
	go func() {
		<-p.StopRequested().Done()
		_ = p.Release(ctx)
	}()
	f.shell("evict -N test limiter/api/tenant-7 4711 --yes")
	require.ErrorIs(t, p.Err(), concurrency.ErrReleased)
	require.NotErrorIs(t, p.Err(), concurrency.ErrEvicted)
	f.golden("show-limiter")
}

// Of a key of a limiter with a total, show says which requests are admitted at the key and wait for the total.
func TestShowOfAKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx, cancel := context.WithCancel(testkit.Context(t))
	defer cancel()
	l, err := concurrency.NewKeyedLimiter(f.session("web-7"), "api", 2, &concurrency.KeyedLimiterOptions{Total: 1})
	require.NoError(t, err)
	acme := l.Key("acme")
	f.permit(acme.Acquire(ctx, concurrency.MaxHold(time.Hour)))
	for n := range 2 { // one waits for the total, and the next one for the key
		go func() { _, _ = acme.Acquire(ctx, concurrency.ID(strconv.Itoa(n)), concurrency.Note("for a test")) }()
		require.Eventually(t, func() bool { st, err := acme.Status(ctx); return err == nil && len(st.Waiters) == n+1 }, testkit.Soon, 5*time.Millisecond)
	}
	out := f.run("show", "-N", "test", "limiter/api/acme").out
	require.Regexp(t, `(?m)^holds +\d`, out)
	require.Regexp(t, `(?m)^waits for the total +\d`, out)
	require.Regexp(t, `(?m)^waits 1st +\d`, out)
	require.NotContains(t, out, "2nd")
	st, err := acme.Status(ctx)
	require.NoError(t, err)
	for i, r := range slices.Concat(st.Holders, st.Waiters) {
		f.shows(r.Token, strconv.Itoa(4711+i))
	}
	f.shell("show -N test limiter/api/acme -o json")
	f.golden("show-key")
}

// The shares of a rate are shown with the processes that have them.
func TestShowOfARate(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l, err := concurrency.NewRateLimiter(f.session("web-7"), "mail", concurrency.Rate{PerSecond: 10, Burst: 1}, nil)
	require.NoError(t, err)
	require.NoError(t, l.Wait(testkit.Context(t)))
	f.shell("show -N test rate/mail -o json")
	f.golden("show-rate")
}
