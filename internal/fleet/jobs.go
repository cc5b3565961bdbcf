package fleet

import (
	"cmp"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/internal/ticks"
)

// Job is one job of schedlock.
type Job struct {
	name    string
	in      *State
	queues  keyspace.Job
	keys    int           // the number of its keys
	floors  int           // of them, those that Forget leaves
	lock    int64         // create revision of the lock, or 0
	Paused  bool          // a pause is stored
	Period  time.Duration // of its settings, or 0
	least   time.Duration // AtLeast of its settings
	Runs    map[int64]Run // by tick
	removed int64         // latest end of a run without an error whose record was removed, or 0

	plan        record.Plan // of the processes that have it by Locker.Job, or zero
	operated    int64       // when it was paused or resumed last, as far as it is known, or 0
	operatedMod int64       // revision of that, or 0

	// With Options.Details:

	Cooling  bool         // AtLeast keeps it from starting
	Pause    record.Pause // as far as it can be read
	Settings string       // the settings in force
}

// Later is the State of a Run whose record a later release has written: nothing of it is read but its tick.
const Later = "of a later release"

// Run is one record. State is "" if it is damaged.
type Run struct {
	State  string
	Start  int64
	mod    int64
	end    int64 // or 0
	cooled int64 // when Unlock has ended its cooldown, or 0
	lost   int   // earlier attempts whose process was lost
	lostAt int64 // start of the latest of them, or 0
	// More is what a page shows besides, with Options.Details.
	More *record.Run
}

func (s *State) changeJob(key string, kv *mvccpb.KeyValue, known bool, now int64) {
	name, _, ok := s.space.ParseJob(key)
	if !ok || keyspace.CheckJob(name) != nil {
		return
	}
	j := s.Jobs[name]
	if j == nil {
		j = &Job{name: name, in: s, queues: s.space.Job(name), Runs: map[int64]Run{}}
		s.Jobs[name] = j
	}
	if kv == nil && key == j.queues.Lock() {
		s.deaths.held(Held{Name: "job/" + name, Token: j.lock})
	}
	j.change(key, kv, s.details, now)
	n := 0
	switch {
	case kv != nil && !known:
		n = 1
	case kv == nil:
		n = -1
	}
	if _, floor := j.queues.ParseFloor(key); floor {
		j.floors += n
	}
	if j.keys += n; j.keys == 0 {
		delete(s.Jobs, name)
	}
}

// resumed takes the time at which a pause or a resumption has arrived: that of this clock, which alone is known to be
// the one that fire times are compared with. Another operation, such as a request for a run, changes no time.
func (s *State) resumed(kv *mvccpb.KeyValue, now int64) {
	key := string(kv.Key)
	name, _, _ := s.space.ParseJob(key)
	if j := s.Jobs[name]; j != nil && key == j.queues.Operated() && kv.ModRevision == j.operatedMod {
		j.operated = now
	}
}

// change adds, replaces or removes a key of the job.
func (j *Job) change(key string, kv *mvccpb.KeyValue, details bool, now int64) {
	switch key {
	case j.queues.Lock():
		if j.lock = 0; kv != nil {
			j.lock = kv.CreateRevision
		}
	case j.queues.Cooldown():
		j.Cooling = kv != nil
	case j.queues.Pause():
		j.Paused, j.Pause = kv != nil, record.Pause{}
		if kv != nil && details {
			var ok bool
			if j.Pause, ok = record.DecodePause(kv.Value); !ok {
				j.Pause.Reason = record.Why(key, kv.Value).Error()
			}
		}
	case j.queues.Operated():
		j.operate(kv, now)
	case j.queues.Plan():
		if j.plan = (record.Plan{}); kv != nil {
			j.plan, _ = record.DecodePlan(kv.Value)
			if j.plan.Former != "" { // it was removed
				j.plan = record.Plan{}
			}
		}
	case j.queues.Settings():
		j.Period, j.least, j.Settings = 0, 0, ""
		if kv != nil {
			s, ok := record.DecodeSettings(kv.Value)
			if !ok {
				s.Text = record.Why(key, kv.Value).Error()
			}
			j.Period, _ = record.PeriodOf(s.Text)
			j.least = record.LeastOf(s.Text)
			if details {
				j.Settings = record.Text(record.SettingsText(s.Text))
			}
		}
	default:
		tick, ok := j.queues.ParseRun(key)
		switch {
		case !ok:
		case kv == nil:
			j.remove(tick.UnixMilli())
		default:
			of, r := runOf(kv)
			if details {
				of.More = &r
			}
			j.Runs[tick.UnixMilli()] = of
		}
	}
}

// runOf reads the record of a run.
func runOf(kv *mvccpb.KeyValue) (Run, record.Run) {
	r, ok := record.DecodeRun(kv.Value)
	switch {
	case ok:
	case record.Later(kv.Value) > 0:
		r = record.Run{State: Later}
	default:
		r = record.Run{}
	}
	of := Run{State: r.State, mod: kv.ModRevision, Start: r.StartMS, end: r.EndMS, cooled: r.CooledMS}
	for _, before := range r.Earlier {
		if before.State == record.RunRunning {
			of.lost++
			of.lostAt = max(of.lostAt, before.StartMS)
		}
	}
	return of, r
}

// operate takes the time of a pause or a resumption, which is of another clock. Until now the job may have been paused if
// that is of a later version. Another operation repeats the time of the last Pause or Resume, and its revision: what is known of
// that one stays.
func (j *Job) operate(kv *mvccpb.KeyValue, now int64) {
	var at record.Operated
	ok := false
	if kv != nil {
		at, ok = record.DecodeOperated(kv.Value)
	}
	switch {
	case ok && at.AtMS != 0:
		if of := cmp.Or(at.Revision, kv.ModRevision); of != j.operatedMod {
			j.operated, j.operatedMod = min(at.AtMS, now), of
		}
	case !ok && kv != nil && record.Later(kv.Value) > 0:
		j.operated, j.operatedMod = now, kv.ModRevision
	default:
		j.operated, j.operatedMod = 0, 0
	}
}

// Forgotten reports whether nothing of the job is left but what keeps its earlier ticks from being started.
func (j *Job) Forgotten() bool { return j.keys == j.floors }

// Planned reports whether a process has planned the job.
func (j *Job) Planned() bool { return j.plan.Schedule != "" }

// Running reports whether a run is active.
func (j *Job) Running() bool { return j.lock != 0 }

// Token is that of the active run, or 0.
func (j *Job) Token() int64 { return j.lock }

// Holder returns the lease of the session that has the active run, or 0.
func (j *Job) Holder() int64 { return j.in.keys[j.queues.Lock()] }

// Lost reports whether a run was lost: it is recorded as running, and the lock is not its own.
func (j *Job) Lost(r Run) bool { return r.State == record.RunRunning && r.mod != j.lock }

// History is what a job's records show.
type History struct {
	Lost, Failed int
	Repeated     int   // attempts that were lost, and after which the run was tried again
	LastRun      int64 // start of the latest attempt, or 0
	Success      int64 // latest end of a run without an error, or 0
	LastLost     int64 // start of the latest attempt that was lost, of Lost and Repeated, or 0
	LastFailure  int64 // the latest end of a run that failed, or start of one that was lost and not tried again; or 0
	// Next is by when a start is due: the fire time after the latest record, or the first planned one, and after the latest
	// resumption and cooldown, and not during the latest run, when that has ended; or 0. Of a dense schedule that is resumed it
	// may be a later one, until a process has written the plan.
	Next int64
}

// History sums up the records, at a time. Records of times that have not come yet, by a wrong clock, count as lost or failed alone.
func (j *Job) History(now time.Time) (h History) {
	latest, last := int64(-1), Run{}
	ended, success := j.ends(now)
	h.Success = success
	for tick, r := range j.Runs {
		counted := counts(tick, r, now)
		if counted && r.Start > h.LastRun {
			last = r
		}
		failed, lost := int64(0), r.lostAt
		switch {
		case r.State == record.RunFailed:
			h.Failed++
			failed = r.end
		case j.Lost(r):
			h.Lost++
			lost, failed = max(lost, r.Start), r.Start
		}
		h.Repeated += r.lost
		h.LastFailure, h.LastLost = latestOf(h.LastFailure, failed, now), latestOf(h.LastLost, lost, now)
		if counted {
			h.LastRun = max(h.LastRun, r.Start)
			latest = max(latest, tick)
		}
	}
	switch {
	case latest >= 0 && j.Period >= ticks.Smallest:
		latest = max(latest, j.operated) // no tick from before a resumption is started
		if j.least > 0 {                 // nor one within the cooldown
			latest = max(latest, record.Run{State: last.State, StartMS: last.Start, CooledMS: last.cooled}.Free(j.least))
		}
		h.Next = outlasting(h.LastRun, ended, latest, func(after int64) int64 { return ticks.Next(j.Period, time.UnixMilli(after)).UnixMilli() })
	case j.expected(now):
		if h.Next = outlasting(h.LastRun, ended, max(latest, j.operated), j.plan.Due); h.Next != 0 {
			h.Next += j.plan.LateMS
		}
	}
	return h
}

// outlasting returns the fire time that is due after a time. One that came during the latest run, which has ended, was
// skipped: then it is the one after that, if due has one.
func outlasting(began, ended, latest int64, due func(after int64) int64) int64 {
	next := due(latest)
	if next != 0 && began <= next && next <= ended {
		next = cmp.Or(due(ended), next)
	}
	return next
}

// expected reports whether the plan of the job counts: a live process has it, or calls are to come.
func (j *Job) expected(now time.Time) bool {
	return j.in != nil && j.in.Users(j.name) > 0 || j.plan.Current(now, j.operated)
}

// Upcoming returns up to n fire times after a time that have no record, as far as a period or the plan shows them,
// if a live process has the job or calls are to come; not those that the cooldown of the latest run skips.
func (j *Job) Upcoming(after time.Time, n int) (next []time.Time) {
	last := after.UnixMilli()
	for tick, r := range j.Runs {
		if !counts(tick, r, after) {
			continue
		}
		if last = max(last, tick); j.least > 0 && (j.Cooling || j.lock != 0) {
			last = max(last, r.Start+j.least.Milliseconds())
		}
	}
	for len(next) < n {
		switch {
		case j.Period >= ticks.Smallest:
			last = ticks.Next(j.Period, time.UnixMilli(last)).UnixMilli()
		case j.expected(after):
			last = j.plan.Next(last)
		default:
			last = 0
		}
		at := record.Time(last)
		if at.IsZero() {
			break
		}
		next = append(next, at)
	}
	return next
}

// Processes returns how many live processes have the job, and false if its plan does not show that: there is none, calls
// have written it, the job was run without it since, no process has had it for a week in which it was not paused or resumed,
// or a process of a later release, whose list of jobs cannot be read, may have it.
func (j *Job) Processes(now time.Time, h History) (n int, known bool) {
	if n = j.in.Users(j.name); n > 0 {
		return n, true
	}
	return 0, len(j.in.users.unread) == 0 && j.plan.Gone(now, j.Paused, j.operated, h.LastRun)
}

// Users returns how many live processes have a job by Locker.Job or gocronlock.Cron.Plan.
func (s *State) Users(job string) int { return s.users.have[job] }

// Plans returns the jobs that a session has by Locker.Job or gocronlock.Cron.Plan, in no particular order.
func (s *State) Plans(lease int64) (jobs []string) {
	for key, names := range s.users.of {
		if s.keys[key] == lease {
			jobs = append(jobs, names...)
		}
	}
	return jobs
}
