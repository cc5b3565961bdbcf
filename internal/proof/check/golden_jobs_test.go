package check

import (
	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/record"
)

// goldenJobs are golden histories of jobs.
var goldenJobs = []goldenCase{
	{"one tick after the other", "", func(t *scenario) {
		a := t.runs(0, "a", 1, 1)
		b := t.callsFor(1, "a", 1, 1)
		t.returnsWith(b, "claimed elsewhere")
		t.writes(a, history.ModeGuard, history.OK)
		t.writes(a, history.ModeToken, history.OK)
		t.done(a)
		t.done(t.runs(1, "a", 2, 1))
		c := t.runs(1, "a", 4, 1) // one was left out
		late := t.callsFor(2, "a", 3, 1)
		t.returnsWith(late, "late")
		busy := t.callsFor(2, "a", 5, 1)
		t.returnsWith(busy, "still running")
		t.done(c)
	}},
	{"two jobs at a time", "", func(t *scenario) {
		a, b := t.runs(0, "a", 1, 1), t.runs(0, "b", 1, 1)
		t.goesOn(a)
		t.done(b)
		t.done(a)
	}},
	{"a run that was lost is repeated", "", func(t *scenario) {
		a := t.runs(0, "a", 1, 1)
		t.writes(a, history.ModeGuard, history.OK)
		t.crash(a)
		b := t.runs(1, "a", 1, 2)
		t.writes(a, history.ModeGuard, history.Fail)
		t.writes(b, history.ModeGuard, history.OK)
		t.done(b)
		t.returnsWith(a, "lost")
	}},
	{"a run that failed is tried again, and the next tick is", "", func(t *scenario) {
		t.failsJob(t.runs(0, "a", 1, 1))
		t.now += 20_000
		t.done(t.runs(1, "a", 1, 2))
		t.done(t.runs(1, "a", 2, 1))
	}},
	{"a run is tried again before the pause after its failure", "jobs/pause", func(t *scenario) {
		t.failsJob(t.runs(0, "a", 1, 1))
		b := t.callsFor(1, "a", 1, 2)
		b.pause = "1h"
		t.claims(b)
		t.starts(b)
		t.done(b)
	}},
	{"a failed run is tried again too often", "jobs/retries", func(t *scenario) {
		t.failsJob(t.runs(0, "a", 1, 1))
		t.now += 20_000
		b := t.callsFor(1, "a", 1, 2)
		b.failed = ""
		t.claims(b)
		t.starts(b)
		t.done(b)
	}},
	{"a run is tried again after AtMost had passed", "jobs/again", func(t *scenario) {
		a := t.runs(0, "a", 1, 1)
		a.final = true
		t.failsJob(a)
		t.done(t.runs(1, "a", 1, 2))
	}},
	{"two lines of a crontab at about the same time", "jobs/apart", func(t *scenario) {
		t.done(t.runs(0, "a", 1, 1))
		b := t.callsFor(1, "a", 2, 1)
		b.apart = "2s"
		t.claims(b)
		t.starts(b)
		t.done(b)
	}},
	{"a claim is taken back, and made by another", "", func(t *scenario) {
		a := t.callsFor(0, "a", 2, 1)
		t.claims(a)
		t.commit(change{key: a.key("lock"), del: true}, gone("a", 2))
		t.done(t.runs(1, "a", 1, 1)) // no process has claimed a later one
		t.done(t.runs(1, "a", 2, 1))
	}},
	{"a claim is taken back when its lease has ended", "", func(t *scenario) {
		a := t.callsFor(0, "a", 2, 1)
		t.claims(a)
		t.expire(t.clients[0])
		t.commit(gone("a", 2))
		t.done(t.runs(1, "a", 2, 1))
	}},
	{"a second attempt is taken back", "", func(t *scenario) {
		t.crash(t.runs(0, "a", 1, 1))
		b := t.callsFor(1, "a", 1, 2)
		t.claims(b)
		t.expire(t.clients[1])
		t.commit(change{key: b.run(), value: b.before})
		c := t.callsFor(1, "a", 1, 2)
		t.claims(c)
		t.commit(change{key: c.key("lock"), del: true}, change{key: c.run(), value: c.before})
		t.done(t.runs(2, "a", 1, 2))
	}},
	{"an unlocked run does not know at once", "(jobs/stale) (jobs/overlap)", func(t *scenario) {
		a := t.runs(0, "a", 1, 1)
		t.unlocks(a)
		b := t.runs(1, "a", 2, 1)
		t.goesOn(a)
		t.runEnds(a, history.Evicted)
		t.done(b)
	}},
	{"a lock that was deleted by hand", "(jobs/finish) (jobs/stale) (jobs/overlap)", func(t *scenario) {
		a := t.runs(0, "a", 1, 1)
		t.nemesis(history.Event{Name: "tamper", Attr: map[string]string{"key": simPrefix + a.key("lock")}}, func() {
			t.commit(change{key: a.key("lock"), del: true})
		})
		b := t.runs(1, "a", 1, 2)
		t.goesOn(a)
		t.runEnds(a, history.Lost)
		t.done(b)
	}},
	{"a presence key that was put again without its lease", "", func(t *scenario) {
		a := t.runs(0, "a", 1, 1)
		key := alive(a.lease)
		t.nemesis(history.Event{Name: "tamper", Attr: map[string]string{"key": simPrefix + key}}, func() { t.putAgain(key, 0) })
		t.runEnds(a, history.Lost)
		t.drop(a.lease, "revoked by its session")
		t.open(t.clients[0])
		t.done(t.runs(1, "a", 1, 2))
		t.commit(change{key: key, del: true})
	}},
	{"records are trimmed, and their ticks closed", "", func(t *scenario) {
		t.done(t.runs(0, "a", 1, 1))
		t.done(t.runs(0, "a", 2, 1))
		t.done(t.runs(1, "a", 3, 1), gone("a", 1), floorAt("a", 1))
		t.done(t.runs(1, "a", 4, 1), gone("a", 2), floorAt("a", 2), change{key: "job/a/floor/" + tickAt(1), del: true})
	}},
	{"a claim beyond the horizon is in the way of no tick", "", func(t *scenario) {
		t.done(t.runs(0, "a", 3600, 1))
		t.done(t.runs(1, "a", 1, 1))
	}},
	{"AtMost gives a job free under its function", "", func(t *scenario) {
		a := t.runs(0, "a", 1, 1)
		a.until = t.now + 500
		t.goesOn(a)
		t.now += 1000
		t.runEnds(a, history.HeldTooLong)
		t.finishes(a)
		b := t.runs(1, "a", 2, 1)
		t.returns(a)
		t.returnsWith(a, "failed")
		t.done(b)
	}},
	{"AtLeast keeps a job from starting", "", func(t *scenario) {
		a := t.keeps(0, 1, "1ms")
		t.done(a)
		t.returnsWith(t.callsFor(1, "a", 2, 1), "still running")
		t.now += 1_000_000
		t.commit(change{key: "job/a/cooldown", del: true})
		t.done(t.runs(1, "a", 2, 1))
	}},
	{"AtLeast ends with an unlock", "", func(t *scenario) {
		a := t.keeps(0, 1, "1h")
		t.commit(change{key: "job/a/cooldown", del: true})
		t.unlocks(a)
		t.runEnds(a, history.Evicted)
	}},
	{"a cooldown ends with an unlock, after its run", "", func(t *scenario) {
		a := t.keeps(0, 1, "1h")
		t.done(a)
		t.cools(a, record.Run{State: record.RunDone, CooledMS: 5})
	}},
	{"a cooldown ends with an unlock, after a run that was lost", "", func(t *scenario) {
		a := t.keeps(0, 1, "1h")
		t.crash(a)
		t.cools(a, record.Run{State: record.RunRunning, CooledMS: 5, Token: a.token})
		t.done(t.runs(1, "a", 1, 2))
	}},
	{"a cooldown's end changes what its run did", "jobs/finish", func(t *scenario) {
		a := t.keeps(0, 1, "1h")
		t.done(a)
		t.cools(a, record.Run{State: record.RunFailed, CooledMS: 5})
	}},
	{"a cooldown ends twice", "jobs/finish", func(t *scenario) {
		a := t.keeps(0, 1, "1h")
		t.done(a)
		t.cools(a, record.Run{State: record.RunDone, CooledMS: 5})
		t.commit(change{key: a.run(), value: a.of(record.Run{State: record.RunDone, CooledMS: 6})})
	}},
	{"a lost run gets another's token with its cooldown's end", "jobs/finish", func(t *scenario) {
		a := t.keeps(0, 1, "1h")
		t.crash(a)
		t.cools(a, record.Run{State: record.RunRunning, CooledMS: 5, Token: a.token + 1})
	}},
	{"a job is paused", "", func(t *scenario) {
		t.commit(change{key: "job/a/pause"})
		t.returnsWith(t.callsFor(1, "a", 1, 1), "paused")
		t.commit(change{key: "job/a/pause", del: true})
		t.done(t.runs(1, "a", 1, 1))
	}},

	{"a lock without a record", "jobs/claim", func(t *scenario) {
		r := t.callsFor(0, "a", 1, 1)
		r.token = t.commit(change{key: r.key("lock"), value: record.Lock{Attempt: 1, Owner: "c0"}.Encode(), lease: r.lease})
		t.expire(t.clients[0])
	}},
	{"a lock that is written again", "jobs/claim", func(t *scenario) {
		a := t.runs(0, "a", 1, 1)
		t.putAgain(a.key("lock"), a.lease)
		t.done(a)
	}},
	{"a claim of a session that had ended", "jobs/claim", func(t *scenario) {
		r := t.callsFor(0, "a", 1, 1)
		t.commit(change{key: alive(r.lease), del: true})
		t.claims(r)
		t.drop(r.lease, "expired")
		t.open(t.clients[0])
	}},
	{"a tick is claimed twice", "jobs/again jobs/twice", func(t *scenario) {
		t.done(t.runs(0, "a", 1, 1))
		t.done(t.runs(1, "a", 1, 1))
	}},
	{"a tick is repeated that was done", "jobs/again", func(t *scenario) {
		t.done(t.runs(0, "a", 1, 1))
		t.done(t.runs(1, "a", 1, 2))
	}},
	{"an attempt is left out", "jobs/again jobs/retries", func(t *scenario) {
		t.crash(t.runs(0, "a", 1, 1))
		t.done(t.runs(1, "a", 1, 3))
	}},
	{"more attempts than Retries allows", "jobs/retries", func(t *scenario) {
		t.crash(t.runs(0, "a", 1, 1))
		r := t.callsFor(1, "a", 1, 2)
		r.retries = "0"
		t.claims(r)
		t.starts(r)
		t.done(r)
	}},
	{"a tick that is started a little late", "", func(t *scenario) { t.late("1s") }},
	{"a tick that is started too late", "jobs/late", func(t *scenario) { t.late("100ms") }},
	{"an earlier tick after a later one", "jobs/later", func(t *scenario) {
		t.done(t.runs(0, "a", 2, 1))
		t.done(t.runs(1, "a", 1, 1))
	}},
	{"a tick that was closed", "jobs/later", func(t *scenario) {
		t.done(t.runs(0, "a", 3600, 1))
		t.done(t.runs(0, "a", 7200, 1), gone("a", 3600), floorAt("a", 3600))
		t.done(t.runs(1, "a", 1, 1))
	}},
	{"a job that is paused starts", "jobs/paused", func(t *scenario) {
		t.commit(change{key: "job/a/pause"})
		t.done(t.runs(1, "a", 1, 1))
		t.commit(change{key: "job/a/pause", del: true})
	}},
	{"a job starts before AtLeast has passed", "jobs/held", func(t *scenario) {
		t.done(t.keeps(0, 1, "1ms"))
		t.done(t.runs(1, "a", 2, 1))
		t.now += 1_000_000
		t.commit(change{key: "job/a/cooldown", del: true})
	}},
	{"AtLeast goes too soon", "jobs/held", func(t *scenario) {
		t.done(t.keeps(0, 1, "1h"))
		t.commit(change{key: "job/a/cooldown", del: true})
		t.done(t.runs(1, "a", 2, 1))
	}},
	{"AtLeast is forgotten", "jobs/held", func(t *scenario) {
		r := t.callsFor(0, "a", 1, 1)
		r.atLeast = "1h"
		t.claims(r)
		t.starts(r)
		t.done(r)
	}},
	{"a late finish ends the next tick", "jobs/finish jobs/stale", func(t *scenario) {
		a := t.runs(0, "a", 1, 1)
		t.crash(a)
		b := t.runs(1, "a", 2, 1)
		t.returns(a)
		t.finishes(a)
		t.goesOn(b)
		t.goesOn(b)
		t.returns(b)
	}},
	{"a late finish ends the next attempt", "jobs/finish jobs/stale", func(t *scenario) {
		a := t.runs(0, "a", 1, 1)
		t.crash(a)
		b := t.runs(1, "a", 1, 2)
		t.returns(a)
		t.finishes(a)
		t.goesOn(b)
		t.goesOn(b)
		t.returns(b)
	}},
	{"a late finish writes its record without the lock", "jobs/finish", func(t *scenario) {
		a := t.runs(0, "a", 1, 1)
		t.crash(a)
		t.returns(a)
		t.commit(change{key: a.run(), value: a.record(record.RunDone)})
	}},
	{"a run is ended in etcd while it continues", "jobs/finish", func(t *scenario) {
		a := t.runs(0, "a", 1, 1)
		t.finishes(a)
		t.now += 1_000_000
		t.runEnds(a, history.Lost)
	}},
	{"a lock goes without a word", "jobs/finish", func(t *scenario) {
		a := t.runs(0, "a", 1, 1)
		t.returns(a)
		t.commit(change{key: a.key("lock"), del: true})
	}},
	{"a second attempt that its caller gave up uses itself up", "jobs/finish", func(t *scenario) {
		t.crash(t.runs(0, "a", 1, 1))
		b := t.callsFor(1, "a", 1, 2)
		t.claims(b)
		t.commit(change{key: b.key("lock"), del: true})
	}},
	{"a finish writes another record", "jobs/finish", func(t *scenario) {
		t.done(t.runs(0, "a", 1, 1))
		t.done(t.runs(0, "a", 2, 1), change{key: "job/a/run/" + tickAt(1), value: "?"})
	}},
	{"a claim is taken back that was started", "jobs/finish", func(t *scenario) {
		a := t.runs(0, "a", 1, 1)
		t.returns(a)
		t.commit(change{key: a.key("lock"), del: true}, gone("a", 1))
	}},
	{"unlocked without a call", "jobs/finish", func(t *scenario) {
		a := t.runs(0, "a", 1, 1)
		t.unlocks(a)
		t.last(history.KindCall).Gate = "job/b"
		t.runEnds(a, history.Evicted)
	}},
	{"a record goes, and its tick is open", "jobs/trim", func(t *scenario) {
		t.done(t.runs(0, "a", 1, 1))
		t.done(t.runs(0, "a", 2, 1), gone("a", 1))
	}},
	{"closed ticks are opened", "jobs/trim", func(t *scenario) {
		t.done(t.runs(0, "a", 1, 1))
		t.done(t.runs(0, "a", 2, 1))
		t.done(t.runs(0, "a", 3, 1), gone("a", 1), gone("a", 2), floorAt("a", 2))
		t.done(t.runs(0, "a", 4, 1), floorAt("a", 1), change{key: "job/a/floor/" + tickAt(2), del: true})
	}},
	{"a lock that no process removes", "jobs/left", func(t *scenario) {
		a := t.runs(0, "a", 1, 1)
		t.returns(a)
	}},
	{"settings that outlive all sessions", "jobs/left", func(t *scenario) {
		t.commit(change{key: "job/a/settings", lease: 7})
	}},
	{"one claim, two starts", "jobs/overlap jobs/twice", func(t *scenario) {
		a := t.runs(0, "a", 1, 1)
		b := *a
		t.starts(&b)
		t.goesOn(a)
		t.runEnds(a, history.Released)
		t.done(&b)
	}},
	{"a start without a claim", "jobs/token", func(t *scenario) {
		r := t.callsFor(0, "a", 1, 1)
		r.token = 3
		t.starts(r)
		t.runEnds(r, history.Released)
	}},
	{"a start of another tick", "jobs/token", func(t *scenario) {
		r := t.callsFor(0, "a", 1, 1)
		t.claims(r)
		r.tick = 2
		t.starts(r)
		t.returns(r)
		r.tick = 1
		t.finishes(r)
	}},
	{"a start before the claim", "jobs/early", func(t *scenario) {
		r := t.callsFor(0, "a", 1, 1)
		r.token = t.rev + 2
		t.starts(r)
		t.runEnds(r, history.Lost)
		t.grant(t.asks(1, t.sem, 1)) // its revision is later than the start
		t.claims(r)
		t.returns(r)
		t.finishes(r)
	}},
	{"claimed elsewhere, without a claim", "jobs/reported", func(t *scenario) { t.returnsWith(t.callsFor(0, "a", 1, 1), "claimed elsewhere") }},
	{"paused without a call", "jobs/reported", func(t *scenario) {
		t.returnsWith(t.callsFor(0, "a", 1, 1), "paused")
		t.settle()
		t.commit(change{key: "job/a/pause"})
		t.commit(change{key: "job/a/pause", del: true})
		t.settle()
		t.now += 1_000_000
		t.returnsWith(t.callsFor(0, "a", 1, 1), "paused")
	}},
	{"still running, after the end", "jobs/reported", func(t *scenario) {
		t.done(t.runs(0, "a", 1, 1))
		t.settle()
		t.returnsWith(t.callsFor(0, "a", 2, 1), "still running")
	}},
	{"late, and nothing is later", "jobs/reported", func(t *scenario) {
		t.done(t.runs(0, "a", 1, 1))
		t.returnsWith(t.callsFor(0, "a", 1, 1), "late")
	}},
	{"ran, and did not", "jobs/reported", func(t *scenario) { t.returnsWith(t.callsFor(0, "a", 1, 1), "ran") }},
	{"two runs at a time", "jobs/overlap jobs/stale", func(t *scenario) {
		a := t.runs(0, "a", 1, 1)
		t.drop(a.lease, "expired")
		t.open(t.clients[0])
		b := t.runs(1, "a", 2, 1)
		t.goesOn(a)
		t.runEnds(a, history.Lost)
		t.done(b)
	}},
	{"a run that continues when its lock has gone", "jobs/stale", func(t *scenario) {
		a := t.runs(0, "a", 1, 1)
		t.drop(a.lease, "expired")
		t.open(t.clients[0])
		t.goesOn(a)
		t.runEnds(a, history.Lost)
	}},
	{"a run that continues after its deadline", "jobs/deadline", func(t *scenario) {
		a := t.runs(0, "a", 1, 1)
		a.until = t.now
		t.now += 20_000_000
		t.goesOn(a)
		t.done(a)
	}},
	{"a run that is back from the dead", "jobs/terminal", func(t *scenario) {
		a := t.runs(0, "a", 1, 1)
		t.runEnds(a, history.Lost)
		t.goesOn(a)
		t.done(a)
	}},
	{"a run's guard that holds too long", "jobs/guard", func(t *scenario) {
		a := t.runs(0, "a", 1, 1)
		t.done(a)
		t.writes(a, history.ModeGuard, history.OK)
	}},
	{"a register that takes a former run's token", "jobs/falls", func(t *scenario) {
		a := t.runs(0, "a", 1, 1)
		t.done(a)
		b := t.runs(1, "a", 2, 1)
		t.writes(b, history.ModeToken, history.OK)
		t.writes(a, history.ModeToken, history.OK)
		t.done(b)
	}},
	{"a run is refused by its guard", "jobs/refused", func(t *scenario) {
		a := t.runs(0, "a", 1, 1)
		t.writes(a, history.ModeGuard, history.Fail)
		t.done(a)
	}},
}

// late is a run that was claimed two seconds after its tick.
func (t *scenario) late(lateBy string) {
	r := t.callsFor(0, "a", -2, 1)
	r.lateBy = lateBy
	t.claims(r)
	t.starts(r)
	t.done(r)
}

// cools ends the cooldown of a run, and writes the run's record with that.
func (t *scenario) cools(r *simRun, to record.Run) {
	t.unlocking(r, change{key: r.key("cooldown"), del: true}, change{key: r.run(), value: r.of(to)})
}

// keeps is a run with AtLeast.
func (t *scenario) keeps(n, tick int, d string) *simRun {
	r := t.callsFor(n, "a", tick, 1)
	r.atLeast = d
	t.claims(r, change{key: r.key("cooldown"), lease: 7})
	t.starts(r)
	return r
}
