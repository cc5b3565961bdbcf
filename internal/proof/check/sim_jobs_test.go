package check

import (
	"fmt"
	"slices"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/record"
)

// simRun is one run of a job.
type simRun struct {
	client   *simClient
	job      string
	tick     int // seconds after midnight
	attempt  int
	token    int64
	lease    int64
	call, op int64
	held     int64
	until    int64
	ended    bool
	retries  string
	failed   string // RetryFailed
	pause    string // after a failure
	apart    string
	final    bool // it failed, and is not tried again
	atLeast  string
	lateBy   string
	before   string // the record of the attempt before
	lost     bool   // its lock went with its lease, or by hand
}

var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func tickAt(n int) string { return stampOf(midnight.Add(time.Duration(n) * time.Second)) }

func (r *simRun) key(part string) string { return "job/" + r.job + "/" + part }
func (r *simRun) run() string            { return r.key("run/" + tickAt(r.tick)) }

func (r *simRun) record(state string) string { return r.of(record.Run{State: state}) }

// of is a record of the run, with its attempt, owner, lease and start.
func (r *simRun) of(rec record.Run) string {
	rec.Attempt, rec.Owner, rec.Lease, rec.StartMS, rec.Final = r.attempt, r.client.name, r.lease, midnight.UnixMilli(), r.final
	return rec.Encode()
}

// calls is a call for a tick by client n.
func (s *sim) callsFor(n int, job string, tick, attempt int) *simRun {
	r := &simRun{client: s.clients[n], job: job, tick: tick, attempt: attempt, lease: s.clients[n].lease, retries: "1", failed: "1", pause: "20us", apart: "1s"}
	s.ops++
	r.call = s.ops
	s.emit(history.Event{Kind: history.KindCall, Client: r.client.name, Op: r.call, Name: history.JobDo, Gate: "job/" + job})
	return r
}

// claims puts lock and record.
func (s *sim) claims(r *simRun, more ...change) {
	r.before = string(s.keys[r.run()].Value)
	lock := record.Lock{Lease: r.lease, Tick: midnight.Add(time.Duration(r.tick) * time.Second).Format(time.RFC3339Nano), Attempt: r.attempt, Owner: r.client.name}
	r.token = s.commit(append([]change{{key: r.key("lock"), value: lock.Encode(), lease: r.lease}, {key: r.run(), value: r.record(record.RunRunning)}}, more...)...)
}

func (s *sim) runEvent(r *simRun, kind history.Kind) history.Event {
	return history.Event{Kind: kind, Client: r.client.name, Op: r.op, Name: history.JobStart, Gate: "job/" + r.job, ID: tickAt(r.tick), Token: r.token}
}

// starts calls the function of a claim.
func (s *sim) starts(r *simRun) {
	s.ops++
	r.op = s.ops
	e := s.runEvent(r, history.KindCall)
	e.N, e.Attr = int64(r.attempt), map[string]string{"call": history.Tag(r.client.name, r.call), "retries": r.retries, "atleast": r.atLeast, "lateby": r.lateBy, "retryfailed": r.failed, "pause": r.pause, "apart": r.apart}
	s.emit(e)
	e = s.runEvent(r, history.KindReturn)
	e.Outcome = history.OK
	s.emit(e)
	s.emit(s.runEvent(r, history.KindGranted))
	s.goesOn(r)
}

// runs is a call that leads to a run.
func (s *sim) runs(n int, job string, tick, attempt int) *simRun {
	r := s.callsFor(n, job, tick, attempt)
	s.claims(r)
	s.starts(r)
	return r
}

func (s *sim) goesOn(r *simRun) {
	e := s.runEvent(r, history.KindHeld)
	e.Until = r.until
	r.held = s.emit(e).At
}

func (s *sim) runEnds(r *simRun, cause string) {
	r.ended = true
	e := s.runEvent(r, history.KindEnded)
	e.Cause, e.Held, e.Until = cause, r.held, r.until
	s.emit(e)
}

// returns is the end of a function.
func (s *sim) returns(r *simRun) {
	if !r.ended {
		s.goesOn(r)
		s.runEnds(r, history.Released)
	}
	s.ops++
	s.emit(history.Event{Kind: history.KindCall, Client: r.client.name, Op: s.ops, Name: history.Release, Gate: "job/" + r.job, Token: r.token})
	s.emit(history.Event{Kind: history.KindReturn, Client: r.client.name, Op: s.ops, Name: history.Release, Gate: "job/" + r.job, Token: r.token, Outcome: history.OK})
}

// finishes records the end of a run, together with more.
func (s *sim) finishes(r *simRun, more ...change) {
	s.commit(append([]change{{key: r.key("lock"), del: true}, {key: r.run(), value: r.record(record.RunDone)}}, more...)...)
}

// failsJob is the end of a run whose function has returned an error.
func (s *sim) failsJob(r *simRun) {
	s.returns(r)
	s.commit(change{key: r.key("lock"), del: true}, change{key: r.run(), value: r.record(record.RunFailed)})
	s.returnsWith(r, "failed")
}

// returnsWith is the return of a call.
func (s *sim) returnsWith(r *simRun, what string) {
	s.emit(history.Event{Kind: history.KindReturn, Client: r.client.name, Op: r.call, Name: history.JobDo, Gate: "job/" + r.job, Token: r.token,
		Outcome: history.OK, Cause: what, Attr: map[string]string{"tick": tickAt(r.tick)}})
}

// done is the end of a run from its first to its last step.
func (s *sim) done(r *simRun, more ...change) {
	s.returns(r)
	s.finishes(r, more...)
	s.returnsWith(r, "ran")
}

// unlocks ends a run by force.
func (s *sim) unlocks(r *simRun) {
	s.unlocking(r, change{key: r.key("lock"), del: true}, change{key: r.run(), value: r.record(record.RunUnlocked)})
}

// unlocking is a call of Unlock that makes some changes.
func (s *sim) unlocking(r *simRun, changes ...change) {
	s.ops++
	e := history.Event{Kind: history.KindCall, Client: "admin", Op: s.ops, Name: history.JobUnlock, Gate: "job/" + r.job}
	s.emit(e)
	s.commit(changes...)
	e.Kind, e.Outcome = history.KindReturn, history.OK
	s.emit(e)
}

// crash is the end of a run's lease, of which its process knew before.
func (s *sim) crash(r *simRun) {
	s.runEnds(r, history.Deadline)
	s.expire(r.client)
}

func floorAt(job string, n int) change {
	return change{key: "job/" + job + "/floor/" + tickAt(n)}
}

func gone(job string, n int) change {
	return change{key: "job/" + job + "/run/" + tickAt(n), del: true}
}

// writes is an effect under a run, by its guard or its token.
func (s *sim) writes(r *simRun, mode string, outcome history.Outcome) {
	e := s.runEvent(r, history.KindEffect)
	e.Outcome, e.Attr = outcome, map[string]string{"register": simPrefix + "register/job/" + r.job, "mode": mode}
	s.tries++
	if mode == history.ModeToken {
		e.N = s.tries
	} else if outcome == history.OK {
		e.Attr["value"] = fmt.Sprint(s.tries)
		e.Rev = s.commit(change{key: "register/job/" + r.job, value: e.Attr["value"]})
	}
	s.emit(e)
}

// simJob is a job of the reference model.
type simJob struct {
	name    string
	top     int     // the greatest tick claimed
	last    *simRun // of it
	run     *simRun // whose lock exists
	kept    []int   // ticks with a record
	floor   int
	paused  bool
	atLeast int64 // until when a cooldown lasts
	again   int64 // from when on the last tick may be tried again, after a failure
}

// jobStep is something that happens to a job.
func (s *sim) jobStep() {
	if s.jobs == nil {
		s.jobs = []*simJob{{name: "a"}, {name: "b"}}
	}
	j := s.jobs[s.pick(len(s.jobs))]
	if j.atLeast != 0 && s.now > j.atLeast {
		j.atLeast = 0
		s.commit(change{key: "job/" + j.name + "/cooldown", del: true})
	}
	switch s.pick(12) {
	case 0:
		j.paused = !j.paused
		s.commit(change{key: "job/" + j.name + "/pause", del: !j.paused})
	case 1:
		if j.run != nil {
			s.unlocks(j.run)
			s.lockGone(j.run)
		}
	case 2:
		if j.run != nil {
			s.nemesis(history.Event{Name: "tamper", Attr: map[string]string{"key": simPrefix + j.run.key("lock")}}, func() {
				s.commit(change{key: j.run.key("lock"), del: true})
			})
			j.run.lost = true
			s.lockGone(j.run)
		}
	case 3, 4, 5, 6:
		s.due(j)
	default:
		for _, r := range s.running {
			if r.job == j.name {
				s.goOn(j, r)
				return
			}
		}
	}
}

// due is a call for a tick, mostly the next one.
func (s *sim) due(j *simJob) {
	tick := j.top + 1 + s.pick(2)
	if s.pick(3) == 0 {
		tick = max(1, j.top-s.pick(2))
	}
	r := s.callsFor(s.pick(len(s.clients)), j.name, tick, 1)
	lost := j.last != nil && j.last.lost && j.run == nil && tick == j.top
	switch {
	case j.paused:
		s.returnsWith(r, "paused")
	case j.run != nil || j.atLeast != 0:
		s.returnsWith(r, "still running")
	case lost && j.last.attempt == 1:
		r.attempt = 2
		s.claimed(j, r)
	case tick == j.top && j.again != 0 && s.now > j.again && j.last.attempt == 1:
		r.attempt = 2
		s.claimed(j, r)
	case tick == j.top:
		s.returnsWith(r, "claimed elsewhere")
	case tick < j.top:
		s.returnsWith(r, "late")
	default:
		s.claimed(j, r)
	}
}

func (s *sim) claimed(j *simJob, r *simRun) {
	var more []change
	if s.pick(4) == 0 {
		r.atLeast = "20us"
		more = append(more, change{key: r.key("cooldown"), lease: 7})
	}
	s.claims(r, more...)
	if s.pick(6) == 0 { // its session was lost before the start
		undo := []change{{key: r.key("lock"), del: true}, {key: r.key("cooldown"), del: true}}
		if r.before == "" {
			undo = append(undo, gone(j.name, r.tick))
		} else {
			undo = append(undo, change{key: r.run(), value: r.before})
		}
		s.commit(undo...)
		return
	}
	if r.atLeast != "" {
		j.atLeast = s.now + 40_000
	}
	s.starts(r)
	s.running = append(s.running, r)
	if r.attempt == 1 {
		j.kept = append(j.kept, r.tick)
	}
	j.top, j.last, j.run, j.again = r.tick, r, r, 0
}

// goOn takes a function one step further.
func (s *sim) goOn(j *simJob, r *simRun) {
	if j.run != r { // it learns of that now
		if !r.ended {
			s.runEnds(r, history.Lost)
		}
		s.runOver(r, "lost")
		return
	}
	switch s.pick(4) {
	case 0:
		s.goesOn(r)
	case 1:
		s.goesOn(r)
		s.writes(r, history.ModeGuard, history.OK)
	case 2:
		if r.attempt > 1 {
			s.finishJob(j, r)
			return
		}
		s.failsJob(r)
		s.running = slices.DeleteFunc(s.running, func(o *simRun) bool { return o == r })
		j.run, j.again = nil, s.now+40_000
	default:
		s.finishJob(j, r)
	}
}

// finishJob ends a run, and trims what is too much.
func (s *sim) finishJob(j *simJob, r *simRun) {
	var more []change
	if n := len(j.kept) - 2; n > 0 {
		for _, tick := range j.kept[:n] {
			more = append(more, gone(j.name, tick))
		}
		if j.floor > 0 {
			f := floorAt(j.name, j.floor)
			f.del = true
			more = append(more, f)
		}
		j.floor = j.kept[n-1]
		more = append(more, floorAt(j.name, j.floor))
		j.kept = j.kept[n:]
	}
	s.returns(r)
	s.finishes(r, more...)
	j.run = nil
	s.runOver(r, "ran")
}

// lockGone notes that the lock of a run has gone.
func (s *sim) lockGone(r *simRun) {
	for _, j := range s.jobs {
		if j.run == r {
			j.run = nil
		}
	}
}

// runOver is the return of a call whose function ran.
func (s *sim) runOver(r *simRun, outcome string) {
	s.running = slices.DeleteFunc(s.running, func(o *simRun) bool { return o == r })
	if outcome == "lost" {
		s.returns(r)
	}
	s.returnsWith(r, outcome)
}

// loseRuns is what the end of a lease does to runs. A process that could not renew knows
// before.
func (s *sim) loseRuns(lease int64, known bool) {
	for _, r := range s.running {
		if r.lease != lease {
			continue
		}
		if known && !r.ended {
			s.runEnds(r, history.Deadline)
		}
		if slices.ContainsFunc(s.jobs, func(j *simJob) bool { return j.run == r }) {
			r.lost = true
		}
		s.lockGone(r)
	}
}

// finishJobs lets all runs end.
func (s *sim) finishJobs() {
	for _, j := range s.jobs {
		for _, r := range slices.Clone(s.running) {
			for r.job == j.name && slices.Contains(s.running, r) {
				s.goOn(j, r)
			}
		}
		if j.atLeast != 0 {
			s.now = max(s.now, j.atLeast)
			s.commit(change{key: "job/" + j.name + "/cooldown", del: true})
		}
	}
}
