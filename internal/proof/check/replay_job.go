package check

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/record"
)

// job is what the tap has seen of one scheduled job.
type job struct {
	name     string // "job/<name>"
	gate     *gate  // of its locks: each is admitted as soon as it exists
	claims   []*claim
	holder   *claim                // whose lock exists
	records  map[string]*runRecord // by tick
	ticks    []string              // that are claimed, in their order
	floor    string
	breaches []breach
}

// claim is one start of a tick, in etcd.
type claim struct {
	token   int64 // revision
	tick    string
	attempt int
	rec     record.Run
	lock    *request
	before  *runRecord // the record of the attempt before
	undone  bool       // it was taken back
	hold    *liveKey   // that came with it, or nil
}

// runRecord is the record of a tick.
type runRecord struct {
	text  string
	rec   record.Run
	claim *claim
}

// breach is a state of etcd that cannot be right. It is excused if a nemesis
// wrote or deleted the key.
type breach struct {
	rule, key, text string
	rev, at         int64
}

// jobEvents are a revision's events of one job.
type jobEvents struct {
	lock, hold *history.Event
	runs       map[string]history.Event // by tick
	floors     []string                 // that were put
}

// runJobs applies one revision, of those keys, to the jobs that it touches.
func (s *store) runJobs(c history.Commit, keys []parsedKey) {
	all := map[string]*jobEvents{}
	for i, e := range c.Events {
		k := keys[i]
		if !isJob(k.gate) {
			continue
		}
		ev := all[k.gate]
		if ev == nil {
			ev = &jobEvents{runs: map[string]history.Event{}}
			all[k.gate] = ev
		}
		switch k.kind {
		case keyJobLock:
			ev.lock = &c.Events[i]
		case keyJobCooldown:
			ev.hold = &c.Events[i]
		case keyJobRun:
			ev.runs[k.tick] = e
		case keyJobFloor:
			if e.Kind == history.KindPut {
				ev.floors = append(ev.floors, k.tick)
			}
		}
	}
	for name, ev := range all {
		j := s.jobs[name]
		if j == nil {
			j = &job{name: name, gate: &gate{name: name, fixed: 1}, records: map[string]*runRecord{}}
			s.jobs[name] = j
		}
		j.apply(s, c, ev)
	}
}

func (j *job) apply(s *store, c history.Commit, ev *jobEvents) {
	if len(ev.floors) > 0 {
		if low := slices.Min(ev.floors); low < j.floor {
			j.breach("trim", c, "", "its floor fell from %s to %s", j.floor, low)
		}
		j.floor = max(j.floor, slices.Max(ev.floors))
	}
	switch e := ev.lock; {
	case e == nil:
		j.alone(c, ev)
	case e.Kind == history.KindDelete:
		j.end(s, c, ev)
	case e.KV.Version > 1:
		j.breach("claim", c, string(e.KV.Key), "its lock was written again")
		if j.holder != nil {
			j.holder.lock.again = append(j.holder.lock.again, c.Rev)
		}
	default:
		j.start(s, c, ev)
	}
}

// start applies the claim of a tick.
func (j *job) start(s *store, c history.Commit, ev *jobEvents) {
	kv := ev.lock.KV
	lock, _ := record.DecodeLock([]byte(kv.Value))
	cl := &claim{token: kv.Create, tick: tickOf(lock.Tick), attempt: lock.Attempt}
	cl.lock = &request{gate: j.gate, key: string(kv.Key), parsed: parsedKey{kind: keyJobLock, gate: j.name, weight: 1, lease: kv.Lease},
		token: kv.Create, putAt: c.At, lease: kv.Lease, admitted: c.Rev, gone: never, goneAt: never}
	cl.lock.rec.Owner = lock.Owner
	j.claims, j.holder = append(j.claims, cl), cl

	run, ok := ev.runs[cl.tick]
	if ok && run.Kind == history.KindPut {
		cl.rec, ok = record.DecodeRun([]byte(run.KV.Value))
	}
	r := cl.rec
	if !ok || len(ev.runs) != 1 || r.State != record.RunRunning || r.Attempt != lock.Attempt || r.Lease != kv.Lease || r.Owner != lock.Owner {
		j.breach("claim", c, "", "a lock for attempt %d at tick %s came without its record", cl.attempt, cl.tick)
		return
	}
	if l := s.leases[kv.Lease]; l != nil && l.gone < c.Rev {
		j.breach("claim", c, "", "tick %s was claimed by %s, whose session had ended", cl.tick, r.Owner)
	}
	if ev.hold != nil {
		cl.hold = s.live[j.name+"/cooldown"]
	}
	for part, rule := range map[string]string{"/cooldown": "held", "/pause": "paused"} {
		if k := s.live[j.name+part]; k != nil && k.created < c.Rev {
			j.breach(rule, c, "", "tick %s was claimed by %s although %q existed", cl.tick, r.Owner, k.name)
		}
	}
	j.ordered(s, c, cl)
	j.records[cl.tick] = &runRecord{text: string(run.KV.Value), rec: r, claim: cl}
}

// ordered asks whether a tick may be claimed after all that were claimed before.
func (j *job) ordered(s *store, c history.Commit, cl *claim) {
	at, claimed := slices.BinarySearch(j.ticks, cl.tick)
	cl.before = j.records[cl.tick]
	switch b := cl.before; {
	case cl.attempt == 1 && claimed:
		j.breach("again", c, "", "tick %s was claimed once more as a first attempt, by %s", cl.tick, cl.rec.Owner)
	case cl.attempt > 1 && (b == nil || b.rec.Attempt != cl.attempt-1 || b.rec.State != record.RunRunning && !b.mayFollow()):
		j.breach("again", c, "", "attempt %d at tick %s was claimed by %s, and the attempt before was not lost, and is no failure that is tried again: %s", cl.attempt, cl.tick, cl.rec.Owner, b)
	}
	if !claimed {
		j.ticks = slices.Insert(j.ticks, at, cl.tick)
	}
	// Claims beyond its horizon are of a clock that is wrong, and block no call.
	horizon := stampOf(time.UnixMilli(cl.rec.StartMS).Add(s.skew))
	if at++; at < len(j.ticks) && j.ticks[at] < horizon {
		j.breach("later", c, "", "tick %s was claimed by %s after tick %s was", cl.tick, cl.rec.Owner, j.ticks[at])
	}
	if cl.tick <= j.floor {
		j.breach("later", c, "", "tick %s was claimed by %s although those up to %s are closed", cl.tick, cl.rec.Owner, j.floor)
	}
}

// end applies the end of a lock, by whatever.
func (j *job) end(s *store, c history.Commit, ev *jobEvents) {
	cl := j.holder
	if cl == nil {
		j.alone(c, ev)
		return
	}
	key := cl.lock.key
	j.holder = nil
	cl.lock.gone, cl.lock.goneAt, cl.lock.how = c.Rev, c.At, plain
	own, recorded := ev.runs[cl.tick]
	delete(ev.runs, cl.tick)
	lease := s.leases[cl.lock.lease]
	switch {
	case recorded && own.Kind == history.KindPut:
		r, _ := record.DecodeRun([]byte(own.KV.Value))
		switch {
		case cl.before != nil && string(own.KV.Value) == cl.before.text:
			j.undo(cl)
			return
		case r.Attempt != cl.attempt || r.Lease != cl.rec.Lease || r.State == record.RunRunning:
			j.breach("finish", c, "", "the lock of attempt %d at tick %s went with a record of attempt %d, %s, by %s", cl.attempt, cl.tick, r.Attempt, r.State, r.Owner)
		case r.State == record.RunUnlocked:
			cl.lock.how, cl.lock.notice = withNotice, record.Notice{Cause: record.RunUnlocked, By: r.By}
		}
		j.records[cl.tick] = &runRecord{text: string(own.KV.Value), rec: r, claim: cl}
	case recorded && cl.attempt == 1:
		j.undo(cl)
	case lease != nil && (lease.gone <= c.Rev || lease.loose):
		cl.lock.how = withLease
	default:
		j.breach("finish", c, key, "the lock of attempt %d at tick %s was removed, and its record does not show it", cl.attempt, cl.tick)
	}
	j.trim(c, ev)
}

// cooled returns a record as Unlock changes it that ends the cooldown after its run, which has ended or was lost, and whether
// it is such a change.
func cooled(now *runRecord, e history.Event) (after record.Run, ok bool) {
	if now == nil || e.Kind != history.KindPut || now.rec.CooledMS != 0 {
		return after, false
	}
	after, ok = record.DecodeRun([]byte(e.KV.Value))
	before := now.rec
	before.CooledMS = after.CooledMS
	if before.State == record.RunRunning && before.Token == 0 && now.claim != nil {
		before.Token = now.claim.token // which the key's revision showed until now
	}
	return after, ok && after.CooledMS != 0 && before.Encode() == string(e.KV.Value)
}

// alone applies changes of records that come without one of the lock: a claim whose
// session was lost before the function was called is taken back, or a cooldown is unlocked.
func (j *job) alone(c history.Commit, ev *jobEvents) {
	for tick, e := range ev.runs {
		now := j.records[tick]
		if c.Listed {
			r, _ := record.DecodeRun([]byte(e.KV.Value))
			j.records[tick] = &runRecord{text: string(e.KV.Value), rec: r}
			continue
		}
		if after, ok := cooled(now, e); ok {
			now.text, now.rec = string(e.KV.Value), after
			continue
		}
		back := now != nil && now.claim != nil && now.rec.State == record.RunRunning && now.claim.lock.gone < c.Rev && !now.claim.undone
		if e.Kind == history.KindPut {
			back = back && now.claim.before != nil && now.claim.before.text == string(e.KV.Value)
		} else {
			back = back && now.claim.before == nil
		}
		if !back {
			j.breach("finish", c, "", "the record of tick %s was changed without the lock: %s", tick, e.KV.Value)
			continue
		}
		j.undo(now.claim)
	}
}

// undo takes a claim back: the record of the attempt before is restored.
func (j *job) undo(cl *claim) {
	cl.undone = true
	if cl.before != nil {
		j.records[cl.tick] = cl.before
		return
	}
	delete(j.records, cl.tick)
	if at, ok := slices.BinarySearch(j.ticks, cl.tick); ok {
		j.ticks = slices.Delete(j.ticks, at, at+1)
	}
}

// trim applies what a finish has done to other records than its own.
func (j *job) trim(c history.Commit, ev *jobEvents) {
	for tick, e := range ev.runs {
		switch {
		case e.Kind == history.KindPut:
			j.breach("finish", c, "", "a finish wrote the record of tick %s, which was not its own: %s", tick, e.KV.Value)
		case tick > j.floor:
			j.breach("trim", c, "", "the record of tick %s went, and nothing closes the tick", tick)
		}
		delete(j.records, tick)
	}
}

func (j *job) breach(rule string, c history.Commit, key, format string, args ...any) {
	j.breaches = append(j.breaches, breach{rule: rule, key: key, text: fmt.Sprintf(format, args...), rev: c.Rev, at: c.At})
}

// mayFollow reports whether there may be an attempt after one that has failed.
func (e *runRecord) mayFollow() bool { return e.rec.State == record.RunFailed && !e.rec.Final }

func (e *runRecord) String() string {
	if e == nil {
		return "it has no record"
	}
	return fmt.Sprintf("attempt %d is %s", e.rec.Attempt, e.rec.State)
}

func (s *store) short(e history.Event) string { return strings.TrimPrefix(string(e.KV.Key), s.prefix) }

// tickText is the text of a tick, which sorts as the instants do.
const tickText = "2006-01-02T15:04:05.000Z"

func stampOf(t time.Time) string { return t.UTC().Format(tickText) }

func tickOf(text string) string {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return text
	}
	return stampOf(t)
}
