package console

import (
	"fmt"
	"html/template"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/doctor"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// says returns the problems of the overview, and the findings of the doctor that are not OK.
func (f *filled) says(gone map[string]time.Time) (out []string) {
	for _, p := range busiest(f.State, gone).problems {
		out = append(out, p.Name+": "+p.Text)
	}
	for _, found := range namespaceFindings(f.State, f.space, 9, time.Now()) {
		if found.Level != doctor.OK {
			out = append(out, "doctor: "+found.Text)
		}
	}
	return out
}

// fault is what an alert is about: how a namespace gets it, and what the console says of it.
type fault struct {
	fill func(f *filled, now time.Time)
	says []string
	why  string // the console says nothing of it, if there is no fill
}

// runAt records a run of the job invoices that began so long ago.
func runAt(f *filled, now time.Time, ago time.Duration, r record.Run) int64 {
	at := now.Add(-ago).Truncate(time.Minute)
	r.Owner, r.Attempt, r.StartMS = "web-7", max(1, r.Attempt), at.UnixMilli()
	return f.put(f.space.Job("invoices").Run(at), r.Encode(), 0)
}

// requested writes a request that was made so long ago.
func requested(f *filled, q keyspace.Queue, n int, now time.Time, ago, maxHold time.Duration) {
	r := record.Request{Nonce: "n", Owner: "web-7", AtMS: now.Add(-ago).UnixMilli(), MaxHoldMS: maxHold.Milliseconds()}
	f.put(q.Slot(keyspace.Slot{Lease: 7, Number: n, Weight: 1}), r.Encode(), 7)
}

func hourly(f *filled) {
	f.put(f.space.Job("invoices").Settings(), record.Settings{Text: "AtMost 1m" + record.Period + "1h0m0s"}.Encode(), 7)
}

func stored(f *filled, a record.Attempt) {
	a.Number = 1
	f.put(f.space.Store("orders").Entry("acme", "POST /payments", "K-1").Record, a.Encode(), 0)
}

// notStored are the alerts on what nothing in etcd shows afterwards: the overview of a console remembers it, and a doctor does not.
var notStored = []string{"EtcdkitElectionGone", "EtcdkitProcessDied"}

const ofExporter = "it is about the exporter, and not about what is stored"

var faults = map[string]fault{
	"EtcdkitOldestWait": {func(f *filled, now time.Time) {
		charge := f.space.Queue(keyspace.Semaphore, "charge")
		f.put(charge.Limit, record.Limit{Limit: 1}.Encode(), 0)
		requested(f, charge, 1, now, 3*time.Minute, 0)
		requested(f, charge, 2, now, 2*time.Minute, 0)
	}, []string{"semaphore/charge: long wait", "doctor: semaphore/charge: a request has waited since "}, ""},
	"EtcdkitMutexBlocked": {func(f *filled, now time.Time) {
		requested(f, f.space.Queue(keyspace.Mutex, "report"), 1, now, 12*time.Minute, 0)
		requested(f, f.space.Queue(keyspace.Mutex, "report"), 2, now, 11*time.Minute, 0)
	}, []string{"mutex/report: long wait", "doctor: mutex/report: a request has waited since "}, ""},
	"EtcdkitHoldersOverdue": {func(f *filled, now time.Time) {
		requested(f, f.space.Queue(keyspace.Mutex, "report"), 1, now, 30*time.Minute, time.Minute)
		f.Settle(now.Add(-20 * time.Minute).UnixMilli())
	}, []string{"mutex/report: 1 held too long", "doctor: mutex/report: 1 permit is held for longer than MaxHold"}, ""},
	"EtcdkitHoldLong": {func(f *filled, now time.Time) {
		requested(f, f.space.Queue(keyspace.Mutex, "report"), 1, now, 61*time.Minute, 0)
	}, []string{"mutex/report: held for an hour", "doctor: mutex/report: a permit without a MaxHold has been held since "}, ""},
	"EtcdkitLimitSaturated": {why: "a wait of less than a minute is that of a busy queue: its chart has how long that lasts"},
	"EtcdkitKeysSaturated":  {why: "as EtcdkitLimitSaturated: the limiter's page has its hottest keys"},
	"EtcdkitPausedQueue": {func(f *filled, _ time.Time) {
		f.put(f.space.Limiter("api").Default, record.Limit{Limit: 0}.Encode(), 0)
	}, []string{"limiter/api: paused", "doctor: limiter/api: its keys are paused by a default limit of 0"}, ""},
	"EtcdkitUnreadableLimit": {func(f *filled, _ time.Time) {
		f.put(f.space.Queue(keyspace.Semaphore, "charge").Limit, `{"v":2}`, 0)
	}, []string{"semaphore/charge: limit cannot be read", "doctor: semaphore/charge: its limit cannot be read"}, ""},
	"EtcdkitProcessDied": {func(f *filled, now time.Time) {
		lock, alive := f.space.Job("nightly").Lock(), f.space.Session(8).Alive()
		f.put(alive, record.Clock{Owner: "web-8", AtMS: 1}.Encode(), 8)
		f.put(lock, "{}", 8)
		f.put(f.space.Job("nightly").Floor(time.Unix(600, 0)), "", 0)
		f.die(now, lock, alive)
	}, []string{"web-8: died with 1 permit, run or request"}, ""},
	"EtcdkitForeignKeys": {func(f *filled, _ time.Time) {
		f.put(f.space.Queue(keyspace.Election, "shard").Range+"stray", "x", 0)
	}, []string{"election/shard: 1 foreign key", `doctor: election/shard: 1 foreign key: "/etcdkit/v1/shop/election/shard/stray"`}, ""},
	"EtcdkitElectionGone": {func(*filled, time.Time) {}, []string{"election/led-before: no candidate"}, ""},
	"EtcdkitJobNotStarted": {func(f *filled, now time.Time) {
		hourly(f)
		runAt(f, now, 3*time.Hour, record.Run{State: record.RunDone, EndMS: now.Add(-3 * time.Hour).UnixMilli()})
	}, []string{"invoices: no process starts it", "doctor: job invoices: no process has started it since its tick of"}, ""},
	"EtcdkitRunOutlastsPeriod": {func(f *filled, now time.Time) {
		hourly(f)
		f.rev = runAt(f, now, 3*time.Hour, record.Run{State: record.RunRunning}) - 1
		f.put(f.space.Job("invoices").Lock(), "", 7)
	}, []string{"invoices: past its next tick", "doctor: job invoices: a run is active past the next tick of "}, ""},
	"EtcdkitJobGone": {func(f *filled, now time.Time) {
		f.put(f.space.Job("invoices").Plan(), record.Plan{Schedule: "fire times", DueMS: now.Add(time.Hour).UnixMilli(), AliveMS: now.UnixMilli()}.Encode(), 0)
	}, []string{"invoices: no process", "doctor: job invoices: no live process has it any more"}, ""},
	"EtcdkitPausedJobGone": {func(f *filled, now time.Time) {
		f.put(f.space.Job("invoices").Plan(), record.Plan{Schedule: "fire times", DueMS: now.Add(time.Hour).UnixMilli(), AliveMS: now.UnixMilli()}.Encode(), 0)
		f.put(f.space.Job("invoices").Pause(), record.Pause{By: "ada"}.Encode(), 0)
	}, []string{"invoices: no process, paused", "doctor: job invoices: no live process has it any more"}, ""},
	"EtcdkitJobUnsuccessful": {func(f *filled, now time.Time) {
		runAt(f, now, time.Hour, record.Run{State: record.RunFailed, EndMS: now.UnixMilli()})
	}, []string{"invoices: last run failed", "doctor: job invoices: 1 of 1 stored runs failed, the last one among them"}, ""},
	"EtcdkitJobLostRun": {func(f *filled, now time.Time) {
		runAt(f, now, time.Hour, record.Run{State: record.RunDone, EndMS: now.UnixMilli(), Attempt: 2, Earlier: []record.Ended{{Attempt: 1, State: record.RunRunning}}})
	}, []string{"invoices: 1 lost run", "doctor: job invoices: 0 of 1 stored runs were lost, and 1 attempt that was tried again"}, ""},
	"EtcdkitJobPaused": {func(f *filled, _ time.Time) {
		f.put(f.space.Job("invoices").Pause(), record.Pause{By: "ada"}.Encode(), 0)
	}, []string{"invoices: paused", "doctor: job invoices: paused by ada"}, ""},
	"EtcdkitUnknownRequests": {func(f *filled, _ time.Time) { stored(f, record.Attempt{State: record.AttemptWorking, Refuse: true}) },
		[]string{"orders: 1 request of unknown outcome", "doctor: store orders: 1 of 1 requests have an unknown outcome"}, ""},
	"EtcdkitUnknownRequestsOfOneScope": {func(f *filled, _ time.Time) { stored(f, record.Attempt{State: record.AttemptWorking, Refuse: true}) },
		[]string{"orders: 1 request of unknown outcome", "doctor: store orders: 1 of 1 requests have an unknown outcome"}, ""},
	"EtcdkitOrphanedRequests": {func(f *filled, _ time.Time) { stored(f, record.Attempt{State: record.AttemptWorking}) },
		[]string{"doctor: store orders: 1 of 1 requests were lost, and their next duplicates repeat them"}, ""},
	"EtcdkitUnreadableRequests": {func(f *filled, _ time.Time) {
		f.put(f.space.Store("orders").Entry("acme", "POST /payments", "K-1").Record, `{"v":9}`, 0)
	}, []string{"orders: 1 unreadable record", "doctor: store orders: 1 record cannot be read"}, ""},
	"EtcdkitClocksDiffer": {func(f *filled, _ time.Time) {
		f.put(f.space.Session(7).Alive(), record.Clock{Owner: "web-7", AtMS: 16_000}.Encode(), 7) // it arrives at 1,000
	}, []string{"web-7: clock 15s ahead", "doctor: the clock of web-7 is ahead of this machine's by 15s or more"}, ""},
	"EtcdkitExporterDown":  {why: ofExporter},
	"EtcdkitExporterGone":  {why: ofExporter},
	"EtcdkitSeriesDropped": {why: ofExporter},
}

// A415: the console and its doctor know what each alert on the state is about, or there is a reason why they do not: critical ones
// led to an overview on which nothing wanted an operator.
func TestEachAlertIsAProblem(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/observability/fleet_alerts.yaml")
	require.NoError(t, err)
	rules := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllSubmatch(text, -1) {
		rules[string(m[1])] = true
	}
	require.Greater(t, len(rules), 20)
	now := time.Now()
	for rule := range rules {
		of, known := faults[rule]
		require.True(t, known, "%s: what does the console say?", rule)
		require.Equal(t, of.fill == nil, of.why != "", rule)
		if of.fill == nil {
			continue
		}
		f := fill(t)
		of.fill(f, now)
		f.Settle(now.UnixMilli())
		said := strings.Join(f.says(map[string]time.Time{"led-before": now}), "\n") + "\n"
		knows := false // A730: the doctors said OK while critical alerts rang
		for _, want := range of.says {
			require.Contains(t, said, want, rule)
			knows = knows || strings.HasPrefix(want, "doctor: ")
		}
		require.Equal(t, !slices.Contains(notStored, rule), knows, "%s: what does the doctor say?", rule)
	}
	for rule := range faults {
		require.True(t, rules[rule], "there is no rule %s", rule)
	}
}

// A413: a limiter with a default limit of 0, beside keys that have a limit of their own, allows those, and is not paused.
func TestLimiterThatAllowsSomeKeys(t *testing.T) {
	t.Parallel()
	f := fill(t)
	api := f.space.Limiter("api")
	f.put(f.space.Session(7).Alive(), record.Clock{Owner: "web-7", AtMS: 1}.Encode(), 7)
	f.put(api.Default, record.Limit{Limit: 0}.Encode(), 0)
	f.put(api.Key("closed").Limit, record.Limit{Inherit: true}.Encode(), 0)
	f.Settle(1000)
	said := f.says(nil)
	require.Contains(t, said, "limiter/api: paused")
	require.Contains(t, said, "doctor: limiter/api: its keys are paused by a default limit of 0")
	f.put(api.Key("acme").Limit, record.Limit{Limit: 5}.Encode(), 0)
	f.Settle(1000)
	for _, said := range f.says(nil) {
		require.NotContains(t, said, "limiter/api")
	}
	require.False(t, queuesOf(f.State, nil)[0].Paused)
	f.put(api.Key("acme").Limit, record.Limit{Limit: 0}.Encode(), 0)
	f.Settle(1000)
	require.True(t, queuesOf(f.State, nil)[0].Paused, "a key with a limit of 0 is not allowed")
}

// A416: the doctor advised to delete a limit of a later release as a foreign key. It is none, and neither is that of a key whose
// default cannot be read.
func TestLimitsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	f := fill(t)
	f.put(f.space.Session(7).Alive(), record.Clock{Owner: "web-7", AtMS: 1}.Encode(), 7)
	charge, api := f.space.Queue(keyspace.Semaphore, "charge"), f.space.Limiter("api")
	f.put(charge.Limit, `{"v":9}`, 0)
	f.put(charge.Range+"queue/stray", "x", 0)
	f.put(f.space.Queue(keyspace.Semaphore, "mail").Limit, "no JSON", 0)
	f.put(api.Default, `{"v":9}`, 0)
	f.put(api.Key("acme").Limit, record.Limit{Inherit: true}.Encode(), 0)
	f.request(api.Key("acme"), 1, 1)
	f.Settle(1000)
	now := time.UnixMilli(1000)
	var found []string
	for _, one := range doctor.QueuesOf(f.State, quoted, now) {
		found = append(found, one.Text)
		if strings.Contains(one.Text, "later release") {
			require.NotContains(t, one.Advice, "delete")
			require.Contains(t, one.Advice, "leave it")
		}
	}
	require.Equal(t, []string{
		"limiter/api: its limit cannot be read: the value of " + api.Default + " is of a later release: it has version 9, and this release reads version 1",
		`semaphore/charge: 1 foreign key: "` + charge.Range + `queue/stray"`,
		"semaphore/charge: its limit cannot be read: the value of " + charge.Limit + " is of a later release: it has version 9, and this release reads version 1",
		"semaphore/mail: its limit cannot be read: the value of " + f.space.Queue(keyspace.Semaphore, "mail").Limit + " is damaged: it is no record of etcdkit",
		"3 queues; each key of a limiter counts as one",
	}, found)
	rows := map[string]queueRow{}
	for _, r := range rowsOf(f.State, now, nil) {
		rows[r.Name] = r
	}
	require.Equal(t, []any{1, true, 3}, []any{rows["semaphore/charge"].Foreign, rows["semaphore/charge"].Unreadable, rows["semaphore/charge"].trouble()})
	require.Equal(t, []any{0, true}, []any{rows["limiter/api"].Foreign, rows["limiter/api"].Unreadable})
}

// A417: an election that has lost all its candidates has nothing in etcd, and the console, which is to name elections without a
// leader, named a stray key instead. It remembers which were led, for an hour.
func TestElectionsWithoutACandidate(t *testing.T) {
	t.Parallel()
	f := fill(t)
	h := &history{every: sampleEvery}
	start := time.UnixMilli(1_700_000_000_000).Truncate(sampleEvery)
	at := func(n int) time.Time { return start.Add(time.Duration(n) * sampleEvery) }
	shard := f.space.Queue(keyspace.Election, "shard")
	look := func(n int) map[string]time.Time {
		f.Settle(at(n).UnixMilli())
		h.sample(f.State, at(n))
		return h.gone(f.State, at(n))
	}
	f.put(f.space.Queue(keyspace.Election, "never").Range+"stray", "x", 0)
	f.request(shard, 1, 1)
	f.request(shard, 2, 2)
	require.Empty(t, look(1))
	f.end(shard, 1)
	require.Empty(t, look(2), "the other one leads")
	f.end(shard, 2)
	require.Equal(t, map[string]time.Time{"shard": at(2)}, look(3))
	f.put(shard.Range+"stray", "x", 0)
	gone := look(4)
	require.Equal(t, map[string]time.Time{"shard": at(2)}, gone, "a foreign key leads nothing")
	for _, r := range rowsOf(f.State, at(4), gone) {
		require.Equal(t, r.Name == "election/shard", r.Leaderless, r.Name)
	}
	f.request(shard, 3, 3)
	require.Empty(t, look(5))
	f.end(shard, 3)
	hour := int(ledFor / sampleEvery)
	require.NotEmpty(t, look(5+hour))
	require.Empty(t, look(6+hour), "it is retired")
}

// die removes the keys of a session that has died.
func (f *filled) die(now time.Time, keys ...string) {
	f.rev++
	for _, key := range keys {
		f.Remove(key, f.rev, now.UnixMilli())
	}
}

// A431: keys of another program outside of queues were known to the doctor alone, and the first page said that all is well.
func TestForeignKeysAreProblems(t *testing.T) {
	t.Parallel()
	for key, want := range map[string][]string{
		"job/nightly/junk":         {"nightly: 1 foreign key", "doctor: job nightly: 1 foreign key"},
		"job/nightly/run/zzz":      {"nightly: 1 foreign key", "doctor: job nightly: 1 foreign key"},
		"idempotency/orders/junk":  {"outside of queues and jobs: 1 foreign key", `doctor: foreign keys (1): "idempotency/orders/junk"`},
		"session/xyz":              {"outside of queues and jobs: 1 foreign key", `doctor: foreign keys (1): "session/xyz"`},
		"zzz/unknown":              {"outside of queues and jobs: 1 foreign key", `doctor: foreign keys (1): "zzz/unknown"`},
		"semaphore/charge/queue/x": {"semaphore/charge: 1 foreign key", `doctor: semaphore/charge: 1 foreign key: "/etcdkit/v1/shop/semaphore/charge/queue/x"`},
	} {
		f := fill(t)
		f.put(f.space.Root()+key, "x", 0)
		f.Settle(1000)
		require.Subset(t, f.says(nil), want, key)
		n := busiest(f.State, nil).totals
		require.Equal(t, 1, n.Strays+n.Foreign, key)
	}
}

// A734: in an upgrade the doctors advised to delete the keys of the later release.
func TestKeysOfALaterReleaseAreLeft(t *testing.T) {
	t.Parallel()
	f := fill(t)
	f.put(f.space.Session(7).Alive(), record.Clock{Owner: "web-7", AtMS: 1}.Encode(), 7)
	f.put(f.space.Root()+"x-thing/orders/lock", "x", 0)
	f.Settle(1000)
	require.Contains(t, f.says(nil), "doctor: 1 key of a later release")
	require.NotContains(t, strings.Join(f.says(nil), "\n"), "foreign")
	require.Zero(t, busiest(f.State, nil).totals.Strays)
}

// A433: the link of EtcdkitProcessDied found nothing: the keys of permits and runs are gone with the process, and requests were not
// searched by the owner of their attempt.
func TestSearchFindsWhatTheDeadHad(t *testing.T) {
	t.Parallel()
	f := fill(t)
	now := time.Now()
	alive := f.space.Session(7).Alive()
	charge, lock := f.space.Queue(keyspace.Semaphore, "charge"), f.space.Job("nightly").Lock()
	f.put(alive, record.Clock{Owner: "web-dead", AtMS: 1}.Encode(), 7)
	f.put(charge.Limit, record.Limit{Limit: 1}.Encode(), 0)
	f.put(charge.Slot(keyspace.Slot{Lease: 7, Weight: 1}), record.Request{Nonce: "n", Owner: "web-dead", Note: "tenant 7", AtMS: 1}.Encode(), 7)
	token := f.put(lock, "{}", 7)
	entry := f.space.Store("orders").Entry("acme", "pay", "1")
	f.put(entry.Record, record.Attempt{State: record.AttemptWorking, Refuse: true, Number: 1, Lease: 7, Owner: "web-dead"}.Encode(), 0)
	f.Settle(1000)
	f.die(now, charge.Slot(keyspace.Slot{Lease: 7, Weight: 1}), lock, alive)
	f.Settle(1000)
	find := func(text string) (found []string) {
		for _, group := range search(f.State, f.space, text, nil) {
			for _, h := range group.Rows {
				found = append(found, h.Name+": "+h.What)
				require.NotEmpty(t, h.subject)
			}
		}
		return found
	}
	require.Equal(t, []string{
		entry.Ref + ": web-dead executed it, in the store orders",
		fmt.Sprintf("job/nightly: web-dead ran it, token %d", token), "semaphore/charge: web-dead held a permit, token 3, tenant 7",
		entry.Ref + ": in the store orders, web-dead",
	}, find("web-dead"))
	require.Equal(t, []string{"semaphore/charge: web-dead held a permit, token 3, tenant 7"}, find("tenant 7"))
	f.put(entry.Record, record.Attempt{State: record.AttemptDone, Number: 1, Owner: "web-dead"}.Encode(), 0)
	require.NotContains(t, find("web-dead"), entry.Ref+": in the store orders, web-dead")
}

// A436: of an election that had lost its candidates, its page said that the name may be misspelt, and the search and the names beside
// pages did not have it.
func TestGoneElectionIsNamedEverywhere(t *testing.T) {
	t.Parallel()
	f := fill(t)
	now := time.Now()
	c := &console{}
	c.history.led = map[string]time.Time{"shard": now.Add(-time.Minute)}
	f.request(f.space.Queue(keyspace.Election, "other"), 1, 1)
	f.Settle(1000)
	require.Equal(t, []sideRow{{Name: "election/shard", Href: "queue?name=election%2Fshard", Shape: "bad", State: "no candidate"}}, sideQueues(c, f.State)[:1])
	found := search(f.State, f.space, "shard", c.history.gone(f.State, now))
	require.Len(t, found, 1)
	require.Equal(t, []string{"election/shard", "no candidate"}, []string{found[0].Rows[0].Name, found[0].Rows[0].What})
	page, err := template.New("queue.html").Funcs(functions).ParseFS(files, "templates/layout.html", "templates/queuetable.html", "templates/queue.html")
	require.NoError(t, err)
	for at, want := range map[time.Time]string{{}: "a misspelt name look the same", now: "no candidate since"} {
		var out strings.Builder
		require.NoError(t, page.ExecuteTemplate(&out, "permits", queuePage{Name: "election/shard", Stored: true, Idle: true, Gone: at}))
		require.Contains(t, out.String(), want)
		require.Equal(t, at.IsZero(), strings.Contains(out.String(), "misspelt"))
	}
}
