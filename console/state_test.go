package console

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// filled is a state that a test fills.
type filled struct {
	*fleet.State
	space keyspace.Space
	rev   int64
	t     *testing.T
}

func fill(t *testing.T) *filled {
	t.Helper()
	space, err := keyspace.New("/etcdkit", "shop")
	require.NoError(t, err)
	return &filled{fleet.NewState(space, true), space, 0, t}
}

// put writes a key, and returns its revision.
func (f *filled) put(key, value string, lease int64) int64 {
	f.rev++
	f.Put(&mvccpb.KeyValue{Key: []byte(key), Value: []byte(value), CreateRevision: f.rev, ModRevision: f.rev, Lease: lease}, 1000)
	return f.rev
}

// request writes a request of a queue, made so many seconds after the epoch.
func (f *filled) request(q keyspace.Queue, n int, at int64) {
	f.put(q.Slot(keyspace.Slot{Lease: 7, Number: n, Weight: 1}), record.Request{Nonce: "n", Owner: fmt.Sprint("web-", n), Note: "10.0.0.7", AtMS: at * 1000}.Encode(), 7)
}

// delete removes a key.
func (f *filled) delete(key string) {
	f.rev++
	f.Remove(key, f.rev, 1000)
}

// end removes the nth request of a queue.
func (f *filled) end(q keyspace.Queue, n int) {
	f.delete(q.Slot(keyspace.Slot{Lease: 7, Number: n, Weight: 1}))
}

// What was searched for itself is found behind any number of others, and the same search finds the same.
func TestSearchFindsWhatIsExact(t *testing.T) {
	t.Parallel()
	f := fill(t)
	for _, name := range []string{"a", "b", "c", "d"} {
		q := f.space.Queue(keyspace.Semaphore, name)
		f.put(q.Limit, record.Limit{Limit: 2}.Encode(), 0)
		for n := range 300 {
			f.put(q.Slot(keyspace.Slot{Lease: 7, Number: n, Weight: 1}), record.Request{Nonce: "n", Owner: "web-7", ID: fmt.Sprint("pay-", name, n), AtMS: 1}.Encode(), 7)
		}
	}
	exact := f.put(f.space.Queue(keyspace.Semaphore, "z").Slot(keyspace.Slot{Lease: 7, Number: 1, Weight: 1}), record.Request{Nonce: "n", Owner: "web-7", ID: "pay", Note: "the one", AtMS: 1}.Encode(), 7)
	f.Settle(1000)
	first := search(f.State, f.space, "pay", nil)
	rows := first[len(first)-1].Rows
	require.Contains(t, rows[0].What, "the one")
	require.Len(t, rows, mostFound)
	require.Equal(t, "semaphore/a", rows[1].Name)
	for range 5 {
		require.Equal(t, first, search(f.State, f.space, "pay", nil))
	}
	byToken := search(f.State, f.space, fmt.Sprint(exact), nil)
	require.Contains(t, byToken[0].Rows[0].What, "the one")
}

// A problem has lasted since what it is about began, not since something else in its queue did.
func TestSinceWhenAProblem(t *testing.T) {
	t.Parallel()
	wait, hold := time.Unix(10, 0), time.Unix(20, 0)
	row := func(r queueRow) queueRow {
		r.Waiting, r.OldestWait, r.OldestHold = 3, wait, hold
		return r.marked()
	}
	for _, p := range problemsOf([]queueRow{row(queueRow{Name: "paused", Paused: true}), row(queueRow{Name: "late", Overdue: 1}), row(queueRow{Name: "stray", Foreign: 1}), row(queueRow{Name: "gone", Election: true, Leaderless: true, led: hold}), row(queueRow{Name: "slow", Slow: true})}, nil, nil, nil) {
		require.Equal(t, map[string]time.Time{"late": hold, "gone": hold, "slow": wait}[p.Name], p.Since, p.Name)
	}
}

// Searches do not push the pages out of what is remembered.
func TestRememberedSearches(t *testing.T) {
	t.Parallel()
	s := &shared{}
	s.remember("queues", readings{asked: time.Unix(0, 1)})
	for n := range 100 {
		s.remember(ofSearch+strconv.Itoa(n), readings{asked: time.Unix(int64(n+1), 0)})
	}
	require.Len(t, s.pages, maxFound+1)
	require.Contains(t, s.pages, "queues")
	require.Contains(t, s.pages, ofSearch+"99")
	require.Contains(t, s.pages, ofSearch+"84")
}

// The overview counts what wants an operator. A request of a limiter with a total waits at its key or at the
// total, and counts once.
func TestOverviewFigures(t *testing.T) {
	t.Parallel()
	f := fill(t)
	charge := f.space.Queue(keyspace.Semaphore, "charge")
	f.put(charge.Limit, record.Limit{Limit: 1}.Encode(), 0)
	f.request(charge, 1, 50)
	f.request(charge, 2, 60)
	f.put(f.space.Queue(keyspace.Semaphore, "paused").Limit, record.Limit{Limit: 0}.Encode(), 0)
	f.put(f.space.Queue(keyspace.Election, "shard").Range+"stray", "x", 0)
	for n := range 2 { // its candidate has waited for longest, which is as it should be
		f.request(f.space.Queue(keyspace.Election, "led"), n, int64(1+n))
	}
	lim := f.space.Limiter("api")
	f.put(lim.Default, record.Limit{Limit: 2, Total: true}.Encode(), 0)
	f.put(lim.Total().Limit, record.Limit{Limit: 1}.Encode(), 0)
	for n := range 3 { // two are admitted at the key, of which one holds and one waits for the total; the third waits at its key
		f.request(lim.Key("acme"), n, int64(10+n))
		if n < 2 {
			f.request(lim.Total(), n, int64(10+n))
		}
	}
	job := f.space.Job("invoices")
	f.put(job.Run(time.Unix(600, 0)), record.Run{State: record.RunRunning, Attempt: 1, Owner: "web-7", StartMS: 600_000}.Encode(), 0)
	f.put(job.Pause(), record.Pause{By: "ada"}.Encode(), 0)
	f.put(f.space.Job("gone").Floor(time.Unix(600, 0)), "", 0)
	f.put(f.space.Store("orders").Entry("acme", "POST /payments", "K-1").Record, record.Attempt{State: record.AttemptWorking, Refuse: true, Number: 1}.Encode(), 0)
	f.put(f.space.Session(7).Alive(), record.Clock{Owner: "web-7", AtMS: 1}.Encode(), 7)
	f.Settle(100_000)

	gone := map[string]time.Time{"shards": time.Unix(70, 0)}
	got := busiest(f.State, gone)
	n := got.totals
	require.Equal(t, []int{6, 3, 2, 2, 1, 1, 1, 1, 1, 1}, []int{n.Queues, n.Waiting, n.Crowded, n.Full, n.Paused, n.Leaderless, n.LostRuns, n.PausedJobs, n.Sessions, n.Foreign})
	require.Equal(t, 1, n.UnknownRequests)
	var problems []string
	for _, p := range got.problems {
		problems = append(problems, p.Name+": "+p.Text)
	}
	require.Equal(t, []string{
		"election/shards: no candidate", "semaphore/paused: paused", "orders: 1 request of unknown outcome", "invoices: last run lost",
		"election/shard: 1 foreign key", "limiter/api: long wait", "semaphore/charge: long wait",
	}, problems)
	require.Equal(t, []string{"semaphore/paused", "election/shards"}, []string{queuesOf(f.State, gone)[0].Name, queuesOf(f.State, gone)[1].Name}, "the problems are first")
	require.Equal(t, time.Unix(11, 0), n.OldestWait, "of the one that waits for the total")
	require.Equal(t, queueRow{
		Name: "limiter/api", Kind: "limiter", Requests: 3, Limit: "2 per key, 1 in total", Most: 1, Marks: []mark{{"warn", "long wait"}, {"warn", "held for an hour"}}, Used: 1, Waiting: 2, Full: true, Slow: true, Held: true,
		OldestWait: time.Unix(11, 0), OldestHold: got.rows[0].OldestHold, unbounded: got.rows[0].OldestHold,
	}, got.rows[0])
	for text, r := range map[string]queueRow{
		"at the limit": {Kind: "limiter", Full: true, Used: 6, Most: 6}, "a key at its limit": {Kind: "limiter", Full: true, Used: 4, Most: 6},
	} {
		require.Equal(t, marks{{"busy", text}}, r.marked().Marks, "what the bar beside it shows")
	}
	require.Equal(t, marks{{"busy", "a key at its limit"}}, queueRow{Kind: "limiter", Full: true, Used: 4}.marked().Marks, "there is no total")
	keys := keysOf(subject{kind: "limiter", name: "api"}, f.Limiters["api"])
	require.Equal(t, []any{"2", true, 1, 1}, []any{keys.Default, keys.HasTotal, keys.InUse, keys.Waiting})
	require.Equal(t, []any{"acme", int64(2), 1, false}, []any{keys.keys[0].Key, keys.keys[0].Used, keys.keys[0].Waiting, keys.keys[0].Own})
	require.Len(t, jobsOf(f.State), 1, "of a forgotten job there is nothing to show")
	require.Equal(t, []electionRow{{Name: "shards", Gone: time.Unix(70, 0)}, {Name: "shard"}, {Name: "led", Leader: "web-0", Note: "10.0.0.7", Since: time.Unix(1, 0), Candidates: 2, Led: true}}, electionsOf(f.State, gone))
}

// The page of a queue says which operator or program has changed its limit last, however that was made; not of one that is as
// the first program stored it, nor of one that a key inherits.
func TestChanger(t *testing.T) {
	t.Parallel()
	f := fill(t)
	charge, api := f.space.Queue(keyspace.Semaphore, "charge"), f.space.Limiter("api")
	f.put(charge.Limit, record.Limit{Limit: 2, By: "web-7", AtMS: 1000, Initial: true}.Encode(), 0)
	set := func(s subject) changer { return changerOf(queueIn(s, f.State)) }
	semaphore, key := subject{kind: "semaphore", name: "charge"}, subject{kind: "limiter", name: "api", key: "acme"}
	require.Zero(t, set(semaphore))
	f.put(charge.Limit, record.Limit{Limit: 0, By: "etcdkit limit by ada", AtMS: 2000}.Encode(), 0)
	require.Equal(t, changer{"etcdkit limit by ada", time.UnixMilli(2000)}, set(semaphore))
	f.put(api.Default, record.Limit{Limit: 5, By: "ada", AtMS: 3000}.Encode(), 0)
	f.put(api.Key("acme").Limit, record.Limit{Limit: 7, By: "bob", AtMS: 4000}.Encode(), 0)
	require.Equal(t, changer{"bob", time.UnixMilli(4000)}, set(key))
	f.put(api.Key("acme").Limit, record.Limit{Inherit: true, By: "bob", AtMS: 4000}.Encode(), 0)
	require.Zero(t, set(key))
	require.Equal(t, changer{"ada", time.UnixMilli(3000)}, keysOf(subject{kind: "limiter", name: "api"}, f.Limiters["api"]).Set)
	f.put(charge.Limit, "no JSON", 0)
	require.Zero(t, set(semaphore))
	require.Zero(t, set(subject{kind: "semaphore", name: "none"}), "a queue that there is not")
}

// The keys of a limiter are listed by how much of their limit is in use and asked for: a small one in which much waits is
// before a large one that is full. The list is bounded; what is left out is colder.
func TestHeat(t *testing.T) {
	t.Parallel()
	f := fill(t)
	api := f.space.Limiter("api")
	f.put(api.Default, record.Limit{Limit: 2}.Encode(), 0)
	requests := func(key string, n int) {
		for i := range n {
			f.request(api.Key(key), i, 1)
		}
	}
	requests("small", 6)
	f.put(api.Key("large").Limit, record.Limit{Limit: 10}.Encode(), 0)
	requests("large", 11)
	f.put(api.Key("closed").Limit, record.Limit{Limit: 0}.Encode(), 0)
	requests("closed", 1)
	requests("full", 2)
	requests("half", 1)
	f.put(api.Key("quiet").Limit, record.Limit{Limit: 0}.Encode(), 0)
	f.Settle(1000)
	var got []string
	for _, r := range keysOf(subject{kind: "limiter", name: "api"}, f.Limiters["api"]).keys {
		got = append(got, fmt.Sprintf("%s %s %d", r.Key, r.Heat, r.Level))
	}
	require.Equal(t, []string{"closed paused 4", "small 300 % 4", "large 110 % 3", "full 100 % 2", "half 50 % 1", "quiet paused 0"}, got)

	for n := range mostKeys + 5 {
		requests(fmt.Sprintf("k%04d", n), 1)
	}
	requests("k0007", 2)
	f.Settle(2000)
	all := keysOf(subject{kind: "limiter", name: "api"}, f.Limiters["api"])
	require.Len(t, all.keys, mostKeys)
	require.Equal(t, 11, all.Rest)
	require.Equal(t, "k0007", all.keys[4].Key)
	require.Equal(t, `<svg class="level" viewBox="0 0 300 8" preserveAspectRatio="none" aria-hidden="true"><rect width="100" height="8"/><rect class="waits" x="100" width="200" height="8"/><rect class="limit" x="99" width="2" height="8"/></svg>`,
		string(heat(keyRow{Most: 2, Used: 2, Weight: 10})), "what is far above the limit does not leave the bar")
}

// A refusal is no outage.
func TestUnanswered(t *testing.T) {
	t.Parallel()
	at := time.Unix(3600, 0)
	require.Equal(t, "etcd has not answered since 01:00:00 UTC", unanswered(at, context.DeadlineExceeded))
	require.Contains(t, unanswered(at, rpctypes.ErrPermissionDenied), "etcd has not let this console read since 01:00:00 UTC: etcdserver: permission denied")
}

// A214: a run whose record a later release has written is shown as one, without an attempt, a process or a start in 1970.
func TestRunOfALaterRelease(t *testing.T) {
	t.Parallel()
	f := fill(t)
	keys := f.space.Job("invoices")
	f.put(keys.Run(time.Unix(600, 0)), record.Run{State: record.RunDone, Owner: "a", Attempt: 1, StartMS: 600_000, EndMS: 601_000}.Encode(), 0)
	f.put(keys.Run(time.Unix(1200, 0)), `{"v":2,"state":["done"],"start":"00:20"}`, 0)
	j := f.Jobs["invoices"]
	rows := runsOf(j)
	require.Equal(t, runRow{Tick: time.Unix(1200, 0), State: fleet.Later, Error: "this release cannot read its record", Took: "–"}, rows[0])
	require.Len(t, rows, 2)
	require.Len(t, processesOf(rows), 1)
	require.Equal(t, fleet.Later, jobsOf(f.State)[0].Outcome)
	require.EqualValues(t, 600_000, j.History(time.Now()).LastRun, "the start of the latest that can be read")
}

// The page of a job shows recorded and skipped ticks, what each process has run, and the next fire times.
func TestJobView(t *testing.T) {
	t.Parallel()
	f := fill(t)
	keys := f.space.Job("invoices")
	run := func(minute int64, r record.Run) {
		r.Attempt, r.StartMS = 1, minute*60_000
		f.put(keys.Run(time.Unix(minute*60, 0)), r.Encode(), 0)
	}
	run(0, record.Run{State: record.RunDone, Owner: "a", EndMS: 25 * 60_000})
	run(30, record.Run{State: record.RunFailed, Owner: "b", EndMS: 31 * 60_000, Error: "disk is full"})
	run(50, record.Run{State: record.RunRunning, Owner: "a"})
	f.put(keys.Run(time.Unix(3600, 0)), "no JSON", 0)
	f.put(keys.Settings(), record.Settings{Text: "AtMost 1m" + record.Period + "10m0s"}.Encode(), 7)
	f.put(keys.Cooldown(), "", 7)
	j := f.Jobs["invoices"]
	require.Equal(t, "cooling down", stateOf(j))
	var shown []string
	for _, r := range withSkipped(runsOf(j), j.Period) {
		shown = append(shown, fmt.Sprintf("%s %s %s %s", r.Tick.UTC().Format("15:04"), r.State, r.Owner, r.Error))
	}
	require.Equal(t, []string{
		"00:50 lost a its session has ended: its process died, was cut off from etcd, or was paused for too long", "00:40 skipped  not stored: the run before, a cooldown, a pause, or no process was alive", "00:30 failed b disk is full",
		"00:10 skipped, 2 ticks  the run before was active", "00:00 done a ",
	}, shown)
	require.Equal(t, []processRow{{"a", 2, 1, 0, 1, time.Unix(3000, 0)}, {"b", 1, 0, 1, 0, time.Unix(1800, 0)}}, processesOf(runsOf(j)))
	now := time.Now()
	next := nextOf(j, 3)
	require.Len(t, next, 3)
	require.True(t, next[0].After(now) && next[0].Before(now.Add(11*time.Minute)) && next[0].Unix()%600 == 0, "%v", next[0])
	require.Equal(t, 20*time.Minute, next[2].Sub(next[0]))
	require.Zero(t, overdueSince(j, now), "it cools down")
	j.Cooling = false
	require.Zero(t, overdueSince(j, time.Unix(4229, 0)), "its tick has just come")
	require.Equal(t, time.Unix(4200, 0), overdueSince(j, time.Unix(4230, 0)).UTC().Local())
	row := skippedSince(runsOf(j)[0], j.Period, time.Unix(4200, 0), time.Unix(6001, 0))
	require.Equal(t, []any{time.Unix(4200, 0).UTC(), "skipped, 4 ticks", true}, []any{row.Tick.UTC(), row.State, row.Bad})
	f.put(keys.Pause(), record.Pause{By: "ada"}.Encode(), 0)
	require.Empty(t, nextOf(j, 3), "no tick starts")
	require.Zero(t, overdueSince(j, now))
	f.put(keys.Lock(), "", 7)
	require.Equal(t, "running, paused", stateOf(f.Jobs["invoices"]))
}

// A368: a job whose schedule no live process has any more is not idle: the list says so, and so does the overview. One of calls,
// and one that is retired, is idle.
func TestJobThatNoProcessHas(t *testing.T) {
	t.Parallel()
	f := fill(t)
	now := time.Now().UnixMilli()
	hour := time.Hour.Milliseconds()
	plan := record.Plan{Schedule: "fire times", DueMS: now + hour, NextMS: []int64{now + hour}, AliveMS: now - hour}
	called, retired := plan, plan
	called.Called, retired.AliveMS = true, now-200*hour
	for name, p := range map[string]record.Plan{"nightly": plan, "had": plan, "called": called, "retired": retired, "waits": plan} {
		keys := f.space.Job(name)
		f.put(keys.Plan(), p.Encode(), 0)
		f.put(keys.Run(time.UnixMilli(p.AliveMS)), record.Run{State: record.RunDone, Owner: "a", Attempt: 1, StartMS: p.AliveMS, EndMS: p.AliveMS}.Encode(), 0)
	}
	f.put(f.space.User(7, 0), record.User{Jobs: []string{"had"}}.Encode(), 7)
	f.put(f.space.Job("waits").Pause(), record.Pause{By: "ada"}.Encode(), 0)
	states, marked := map[string]string{}, map[string]mark{}
	for _, r := range jobsOf(f.State) {
		states[r.Name], marked[r.Name] = r.State, r.Marks[0]
	}
	for name, want := range map[string]string{"nightly": "no process", "had": "idle", "called": "idle", "retired": "idle", "waits": "no process, paused"} {
		require.Equal(t, want, states[name], name)
	}
	require.Equal(t, mark{"bad", "no process"}, marked["nightly"])
	require.Equal(t, mark{"paused", "no process, paused"}, marked["waits"])
	require.Equal(t, "nightly", jobsOf(f.State)[0].Name, "it wants an operator first")
	found := problemsOf(nil, jobsOf(f.State), nil, nil)
	require.Equal(t, []string{"nightly", "no process"}, []string{found[0].Name, found[0].Text})
}
