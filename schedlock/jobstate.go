package schedlock

import (
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// job is the state of a job that this process uses.
type job struct {
	name string
	keys keyspace.Job

	holds  int  // by what needs its events; jobs guards it, and
	recent bool // whether a call has used it since jobs has forgotten some

	mu          sync.Mutex
	print       string               // the settings of this process
	stored      string               // the settings in etcd, at the last read
	storedAs    string               // their value, if this release writes another one for them
	claimed     map[string]string    // by key of a run record that events have shown: its owner
	order       []string             // the keys of claimed, oldest first
	runners     map[int64]bool       // leases of the processes that have claimed a tick
	runs        map[int64]*Run       // by token: the active runs of this process
	open        map[int64]record.Run // by token: ends of this process's runs that etcd has not confirmed
	lockGone    int64                // revision of the last deletion of the lock
	unlocked    unlockedRun          // the latest one
	floor       time.Time            // up to which records were removed, if events have shown that
	changed     chan struct{}        // closed and replaced at each event
	cooldown    *cooldown
	callers     callers     // of this process
	ahead       sync.Once   // a claim of a later tick than the present time is logged once
	untimed     time.Time   // the tick of the latest claim of this process by a call without one
	noTick      sync.Once   // that such calls of two processes run the job is logged once
	differs     sync.Once   // other fire times of one crontab are logged once
	planned     record.Plan // in etcd, as far as events have shown it
	shown       bool        // an event has shown it since plans were read
	unput       unput
	losses      losses
	stamped     int64  // of the latest claim of this process, see stampOf
	jobs        []*Job // of this name that were asked for their fire times: the last one runs what RequestRun asks for
	served      int64  // mod revision of the latest request that this process has looked at
	requestGone int64  // revision at which the latest request was started, or expired
}

func newJob(name string, keys keyspace.Job, e *etcd) *job {
	return &job{
		name: name, keys: keys, claimed: map[string]string{}, runners: map[int64]bool{}, runs: map[int64]*Run{},
		open: map[int64]record.Run{}, changed: make(chan struct{}), cooldown: &cooldown{etcd: e},
	}
}

// gives takes a Job from those of this name. If it was the last one, it returns the one that is the last one now, or nil.
func (j *job) gives(one *Job) (stays *Job) {
	j.mu.Lock()
	defer j.mu.Unlock()
	i := slices.Index(j.jobs, one)
	last := i >= 0 && i == len(j.jobs)-1
	if i >= 0 {
		j.jobs = slices.Delete(j.jobs, i, i+1)
	}
	if !last {
		return nil
	}
	j.served = 0 // another Job looks at a request that this one has not started
	if len(j.jobs) > 0 {
		stays = j.jobs[len(j.jobs)-1]
	}
	return stays
}

// idle reports whether no run of this process is active or has an end that etcd has not confirmed, and no Job takes requests
// for runs.
func (j *job) idle() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.jobs) == 0 && len(j.runs) == 0 && len(j.open) == 0
}

// running reports whether a run of this process is active.
func (j *job) running() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.runs) > 0
}

// unlockedRun is a run that Unlock has ended.
type unlockedRun struct {
	key string // of its record
	by  record.Run
	at  int64 // revision
}

// memory is the number of claims that are remembered of each job.
const memory = 64

func checkName(name string) error {
	if err := keyspace.CheckJob(name); err != nil {
		return invalid("the name of the job %w", err)
	}
	return nil
}

// use records the settings of a call. It returns ErrInvalid if this process uses the job with other
// settings.
func (j *job) use(print string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	both, ok := agree(print, j.print)
	if !ok {
		return invalid("the job is in use with other settings in this process: here %s; there %s", record.SettingsText(print), record.SettingsText(j.print))
	}
	j.print = both
	return nil
}

// unsettled forgets the settings of this process: a new Job may have others. The next call without a Job records its own.
func (j *job) unsettled() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.print, j.unput = "", unput{}
}

// expected returns the settings that are most likely in etcd: those that were read last, if mine agree
// with them, otherwise mine; and their value, see plan.
func (j *job) expected(mine string) (text, value string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, ok := agree(mine, j.stored); j.stored != "" && ok {
		return j.stored, j.storedAs
	}
	return mine, ""
}

// read records the settings in etcd.
func (j *job) read(stored, as string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stored, j.storedAs = stored, as
}

// seen returns what events have shown of a tick, by the key of its record, and a channel that is
// closed at the next event of the job.
func (j *job) seen(run string) (h observed, changed <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	h.by, h.claimed = j.claimed[run]
	return h, j.changed
}

// rewound forgets the revisions of a history that was taken back.
func (j *job) rewound() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lockGone, j.unlocked, j.served, j.requestGone = 0, unlockedRun{}, 0, 0
	j.losses.rewound()
}

// split divides the live processes into those that are known to run the job, and the others. It
// forgets the processes that are no longer alive.
func (j *job) split(live []int64) (runners, others []int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	known := make(map[int64]bool, len(j.runners))
	for _, lease := range live {
		if j.runners[lease] {
			known[lease] = true
			runners = append(runners, lease)
		} else {
			others = append(others, lease)
		}
	}
	j.runners = known
	return runners, others
}

// notify wakes the calls that wait for an event of the job. The job must be locked.
func (j *job) notify() {
	close(j.changed)
	j.changed = make(chan struct{})
}

// apply takes an event of the job.
func (j *job) apply(key string, ev *clientv3.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	gone := ev.Type == clientv3.EventTypeDelete
	switch {
	case key == j.keys.Lock():
		if gone {
			j.lockGone = ev.Kv.ModRevision
			j.losses.lockGone(ev.Kv.ModRevision)
		}
		for _, r := range j.runs {
			if ev.Kv.ModRevision > r.claim.token {
				r.lockLost()
			}
		}
	case key == j.keys.RequestedRun():
		if gone {
			j.requestGone = ev.Kv.ModRevision
		} else {
			j.requested(ev.Kv)
		}
	case key == j.keys.Lost():
		j.losses.mark(ev.Kv.Value)
	case key == j.keys.Plan():
		j.planShown(ev.Kv.Value, gone)
		return // no call waits for it
	case strings.HasPrefix(key, j.keys.Floors()):
		switch tick, ok := j.keys.ParseFloor(key); {
		case ok && !gone:
			j.floor = tick
		case tick.Equal(j.floor): // by hand: a run that raises the floor deletes the former one
			j.floor = time.Time{}
		}
	case strings.HasPrefix(key, j.keys.Runs()):
		r, ok := record.DecodeRun(ev.Kv.Value)
		if ok && r.State == record.RunUnlocked {
			j.unlocked = unlockedRun{key, r, ev.Kv.ModRevision}
			for _, run := range j.runs {
				j.endIfUnlocked(run)
			}
		}
		j.losses.record(ev.Kv.ModRevision)
		if gone {
			delete(j.claimed, key)
			break
		}
		if _, known := j.claimed[key]; !known {
			j.order = append(j.order, key)
			if len(j.order) > memory {
				delete(j.claimed, j.order[0])
				j.order = j.order[1:]
			}
		}
		j.claimed[key] = r.Owner
		j.runners[r.Lease] = true
	}
	j.notify()
}

// stampOf returns the time that the record of a claim has: now, or a little later if another claim of this process has that. With the lease
// it shows whose a record is.
func (j *job) stampOf(now int64) int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	if now <= j.stamped && j.stamped-now < time.Second.Milliseconds() {
		now = j.stamped + 1
	}
	j.stamped = now
	return now
}

// begin adds a run to the active ones of this process. Events that came before the answer to its claim may have ended it.
func (j *job) begin(r *Run) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.runs[r.claim.token] = r
	j.endIfUnlocked(r)
	if j.lockGone > r.claim.token {
		r.lockLost() // if it has not ended
	}
}

// endIfUnlocked ends a run if it is the one that Unlock has ended last. The job must be locked.
func (j *job) endIfUnlocked(r *Run) {
	if u := j.unlocked; u.at > r.claim.token && u.key == j.keys.Run(r.claim.tick) {
		r.unlocked(u.by)
	}
}

// remaining returns the first names at which a record and a floor of the job may exist that are older
// than a tick. Before them are the names of what was removed, all of which etcd visits until they are
// compacted. What events have not shown yet is among the rest.
func (j *job) remaining(tick time.Time) (record, floor string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.floor.IsZero() || !j.floor.Before(tick) {
		return j.keys.Runs(), j.keys.Floors()
	}
	return j.keys.Run(j.floor) + "\x00", j.keys.Floor(j.floor)
}

// plannedUntil returns until when the plan that is stored is up to date, as far as this process knows: until its last fire time, or
// until its stamp is old. It is zero without a plan.
func (j *job) plannedUntil() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	until := j.planned.Until()
	if until == 0 {
		return time.Time{}
	}
	return time.UnixMilli(min(until, j.planned.AliveMS+stampEach.Milliseconds()))
}

// setPlanned records the plan that is stored.
func (j *job) setPlanned(p record.Plan) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.planned = p
}

// reading is called before the plan is read: what events have shown before counts no more beside that.
func (j *job) reading() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.shown = false
}

// written reports whether events have shown, since the plan was read, one that is up to date: another process has written it.
func (j *job) written(want record.Plan, now time.Time, resumed bool) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.shown || j.planned.Schedule == "" {
		return false
	}
	_, differs := renew(j.planned, want, now, resumed)
	return !differs
}

// unput is a plan that could not be put back while etcd was out of space, when a claim was removed with its own plan: without it
// this process would store one by which the tick of that claim was never due.
type unput struct{ plan, by string }

// planShown keeps the plan that an event has shown; without a value, it has no fire times. The job must be locked.
func (j *job) planShown(value []byte, gone bool) {
	j.planned, _ = record.DecodePlan(value)
	j.shown = true
	if !gone && string(value) != j.unput.by {
		j.unput = unput{}
	}
}

// unplan is called before the plan of a claim is removed, with what would put back the one before.
func (j *job) unplan(by string, former []clientv3.Op) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.unput = unput{by: by}
	for _, op := range former {
		if op.IsPut() {
			j.unput.plan = string(op.ValueBytes())
		}
	}
}

// former returns the plan that could not be put back, or "".
func (j *job) former() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.unput.plan
}
