package schedlock

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/internal/ticks"
)

// State is the state of a recorded run.
type State string

// The states of a recorded run.
const (
	RunActive   State = "running"  // it is active
	RunDone     State = "done"     // its function returned nil
	RunFailed   State = "failed"   // its function returned an error, panicked, or exceeded AtMost
	RunLost     State = "lost"     // its process died, was partitioned or was paused for too long
	RunUnlocked State = "unlocked" // Unlock ended it
	// RunUnconfirmed: its function returned in this process, and etcd has not confirmed the record
	// of the end, see Result.Unconfirmed. Other processes see the run as RunActive, and as RunLost
	// after the lease of its session has expired.
	RunUnconfirmed State = "unconfirmed"
	// RunUnreadable: a later release has recorded it. Nothing but its tick is known, and Error says why.
	RunUnreadable State = "unreadable"
)

// Record is the record of one tick in etcd: of its latest attempt.
type Record struct {
	Job     string
	Tick    time.Time
	State   State
	Attempt int
	Token   int64     // the run's fencing token while it is active, otherwise 0
	Owner   string    // the process that started it
	Start   time.Time // zero if none is recorded, as of End, or none of the years 1 to 9998
	End     time.Time
	// Error is the text of the function's error, cut to 1024 bytes, or the reason of Unlock.
	Error string
	By    string // the process that unlocked it
	// Cooled is when Unlock has ended the cooldown (AtLeast) after the run, or zero.
	Cooled time.Time
	// Earlier are the attempts before, oldest first, of the last ten: Attempt, State, Owner, Start, End and the
	// beginning of Error.
	Earlier []Record
	// Request is the id of the request for which the run was started, see RequestRun, or "".
	Request string
}

// History returns the records of a job, latest tick first, as of one revision of etcd. Records that
// are damaged are left out. The first may be of a tick that has not come, by a wrong clock: Status.Last leaves that out. It returns ErrInvalid if the name is out of range, ErrUnknownJob if
// nothing of the job is in etcd, ErrClosed, ctx's error or an error of etcd's. It changes nothing.
func (l *Locker) History(ctx context.Context, name string) ([]Record, error) {
	j := recordsOf(l, name)
	kvs, err := j.read(ctx, clientv3.OpGet(j.keys.Lock()),
		clientv3.OpGet(j.keys.Runs(), clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend)), j.any())
	if err == nil && !j.exists(kvs[2]) {
		err = ErrUnknownJob
	}
	if err != nil {
		return nil, l.about("read history of", name, err)
	}
	var out []Record
	for _, kv := range kvs[1] {
		if r, ok := j.record(kv, kvs[0]); ok {
			out = append(out, r)
		}
	}
	return out, nil
}

// Get returns the record of one tick. It returns ErrGone if etcd has none that is not damaged, also if nothing of the
// job is in etcd, ErrInvalid if the name is out of range, ErrClosed, ctx's error or an error of
// etcd's.
func (l *Locker) Get(ctx context.Context, name string, tick time.Time) (Record, error) {
	j := recordsOf(l, name)
	kvs, err := j.read(ctx, clientv3.OpGet(j.keys.Lock()), clientv3.OpGet(j.keys.Run(tick)))
	if err == nil {
		err = ErrGone
		if len(kvs[1]) > 0 {
			if out, ok := j.record(kvs[1][0], kvs[0]); ok {
				return out, nil
			}
		}
	}
	return Record{}, fmt.Errorf("get record of job %q, tick %s: %w", name, stamp(tick), l.sess.Explain(err))
}

// Status is the state of a job, as of one revision of etcd.
type Status struct {
	Job     string
	Last    *Record // of the latest tick, but for those more than Options.MaxSkew in the future; or nil
	Running bool    // a run is active
	Token   int64   // its fencing token, or 0
	// CoolingDown reports whether AtLeast keeps the job from starting.
	CoolingDown bool
	Paused      *Pause // or nil
	Plan        *Plan  // of a job that a process has by Job or gocronlock.Cron.Plan, or that calls with Planned run, or nil
	Settings    string // the settings in force, as a text for operators

	due  time.Time // when a start was due by the plan, counted from the latest tick or resumption; or zero
	free time.Time // the same, of the fire times that did not come during the latest run
}

// Plan is what the processes that have a job by Job or gocronlock.NewCron have planned, or calls with Planned. It stays when they
// have ended, for a week.
type Plan struct {
	Text string // of the schedule, if it is known: see Crontab
	Zone string // in which it is read, or "" for Periods
	// Due is the first fire time after the last start or, if there was none, the first that was planned. If it has
	// passed, no process has started it.
	Due time.Time
	// Next are the fire times that follow the last start, or the time at which the plan was written: up to three. A
	// plan that no start renews is written again after an hour or more, so all of them may have passed.
	Next []time.Time
	// Live reports whether a live process has the job.
	Live bool
	// Gone reports whether none has it any more: not of a plan by calls, nor if the job was run without a plan since. It is false
	// again a week after the last process, unless the job is paused.
	Gone bool
	// Called reports whether calls of Do have written the plan, see Planned: no process has the job between two ticks.
	Called bool
	// Late is by how much these calls may come after a fire time.
	Late time.Duration

	operated time.Time // when the job was paused or resumed last, or zero
}

// Expected reports whether the plan counts at a time: a live process has the job or, of a plan by calls, a week has not passed since
// a call was due, or since the job was resumed.
func (p Plan) Expected(now time.Time) bool {
	return p.Live || record.Plan{Called: p.Called, DueMS: p.Due.UnixMilli(), LateMS: p.Late.Milliseconds()}.Current(now, p.operated.UnixMilli())
}

// NextFire returns the first fire time after now that has no record, as the period or the plan shows it. It returns the
// zero time if neither does, as when the fire times of the plan have passed, if the job is paused, or if no live process
// has it. A plan by calls (Plan.Called) needs none: it counts until a week after its Due.
func (s Status) NextFire(now time.Time) time.Time {
	if s.Last != nil && s.Last.Tick.After(now) {
		now = s.Last.Tick
	}
	cools := s.CoolingDown || s.Running // Unlock ends a cooldown
	if least := record.LeastOf(s.Settings); least > 0 && cools && s.Last != nil && s.Last.Start.Add(least).After(now) {
		now = s.Last.Start.Add(least) // the cooldown skips those before
	}
	period, ok := record.PeriodOf(s.Settings)
	switch {
	case s.Paused != nil:
		return time.Time{}
	case ok && period >= ticks.Smallest:
		return record.Time(ticks.Next(period, now).UnixMilli()).UTC()
	case s.Plan == nil || !s.Plan.Expected(now):
		return time.Time{}
	}
	for _, at := range s.Plan.Next {
		if at.After(now) {
			return at.UTC()
		}
	}
	return time.Time{}
}

// Overdue returns since when no process has started the job although a fire time of its plan has come, if that is half a
// minute or more. It returns the zero time if the job has no plan that counts, see NextFire, or if Obstacle has a reason.
// A fire time that came during the latest run does not count.
func (s Status) Overdue(now time.Time) time.Time {
	if s.Plan == nil || !s.Plan.Expected(now) || s.Obstacle() != "" {
		return time.Time{}
	}
	return ticks.Unstarted(s.free, now).UTC()
}

// Missed returns by when the job was to start by its plan and has not, if that is half a minute or more ago, otherwise
// the zero time. Unlike Overdue it counts a plan of which no process lives any more, for as long as the plan is stored, and
// fire times that have come while Obstacle had a reason; not those before the latest pause or resumption.
func (s Status) Missed(now time.Time) time.Time { return ticks.Unstarted(s.due, now).UTC() }

// Obstacle returns why the job cannot start now, as a text, or "" if nothing in etcd keeps it from that.
func (s Status) Obstacle() string {
	switch {
	case s.Paused != nil && s.Paused.Reason != "":
		return fmt.Sprintf("it is paused by %s: %s", cmp.Or(s.Paused.By, "an operator"), s.Paused.Reason)
	case s.Paused != nil:
		return "it is paused by " + cmp.Or(s.Paused.By, "an operator")
	case s.Running && s.Last != nil && s.Last.State == RunActive:
		return fmt.Sprintf("a run by %s is active, since %s", s.Last.Owner, stamp(s.Last.Start))
	case s.Running:
		return "a run is active"
	case s.CoolingDown:
		return "it cools down (AtLeast)"
	}
	return ""
}

// Unanswered returns why no process has started a run that RequestRun has asked for, as a text, as far as etcd shows it
// afterwards.
func (s Status) Unanswered() string {
	switch {
	case s.Obstacle() != "":
		return s.Obstacle()
	case s.Plan != nil && s.Plan.Live:
		return "a process has it, and could not start it when the request came: it was paused, ran, cooled down or was refused, and the log of that process says which; ask again"
	case s.Plan != nil && s.Plan.Called:
		return "calls start it, as those of 'etcdkit jobs run' in a crontab, and no process waits for requests between two of them; 'etcdkit jobs run --now' runs its command"
	}
	return "no live process has it by Locker.Job"
}

// Pause says which process paused a job, why and when. Its fields are zero if the stored pause cannot be read: the
// job is paused all the same.
type Pause struct {
	By     string // SessionOptions.Owner of its session
	Reason string
	Since  time.Time // by the clock of that process, kept as for Resume within a minute of those that run jobs
}

// pauseOf reads a job's pause key, or returns nil if it does not exist.
func pauseOf(kvs []*mvccpb.KeyValue) *Pause {
	if len(kvs) == 0 {
		return nil
	}
	p, ok := record.DecodePause(kvs[0].Value)
	if !ok {
		return &Pause{}
	}
	return &Pause{By: p.By, Reason: p.Reason, Since: record.Time(p.AtMS)}
}

// Status returns the state of a job. It returns the errors of History, ErrUnknownJob among them.
func (l *Locker) Status(ctx context.Context, name string) (Status, error) {
	out, err := recordsOf(l, name).status(ctx)
	return out, l.about("read status of", name, err)
}

// Watch yields the record of each run of the job when it starts and when it ends, from the call on.
// It may miss runs that start or end while etcd cannot be reached. It does not report lost runs,
// since nothing is written then: see History. It yields an error and ends when ctx or the session
// ends, or if the name is out of range.
func (l *Locker) Watch(ctx context.Context, name string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		if err := checkName(name); err != nil {
			yield(Record{}, fmt.Errorf("watch job %q: %w", name, err))
			return
		}
		j := recordsOf(l, name)
		ctx, cancel := l.untilClose(ctx)
		defer cancel()
		records, done := make(chan Record), make(chan struct{})
		go func() {
			defer close(done)
			l.sess.Source().Listen(ctx, j.keys.Runs(), func() {}, func(events []*clientv3.Event) { j.pass(ctx, events, records) })
		}()
		defer func() { cancel(); <-done }()
		for {
			select {
			case r := <-records:
				if !yield(r, nil) {
					return
				}
			case <-ctx.Done():
				yield(Record{}, fmt.Errorf("watch job %q: %w", name, ended(ctx)))
				return
			}
		}
	}
}

// page is the number of keys that one read of the jobs returns.
const page = 1000

// Jobs returns the names of all jobs of the namespace, in the order of their keys. It returns
// ErrClosed, ctx's error or an error of etcd's.
func (l *Locker) Jobs(ctx context.Context) ([]string, error) {
	ctx, cancel := l.untilClose(ctx)
	defer cancel()
	var names []string
	first, end := l.space.Jobs(), clientv3.GetPrefixRangeEnd(l.space.Jobs())
	for {
		resp, err := repeat(ctx, l.etcd, func(call context.Context) (*clientv3.GetResponse, error) {
			return l.kv.Get(call, first, clientv3.WithRange(end), clientv3.WithKeysOnly(), clientv3.WithLimit(page))
		})
		if err != nil {
			return nil, fmt.Errorf("list jobs: %w", l.sess.Explain(err))
		}
		for _, kv := range resp.Kvs {
			name, _, ok := l.space.ParseJob(string(kv.Key))
			if _, floor := l.space.Job(name).ParseFloor(string(kv.Key)); ok && floor {
				first = string(kv.Key) + "\x00" // a floor alone is what Forget has left
				continue
			}
			if ok && (len(names) == 0 || names[len(names)-1] != name) {
				names = append(names, name)
				first = clientv3.GetPrefixRangeEnd(l.space.Job(name).Range)
			} else if !ok {
				first = string(kv.Key) + "\x00"
			}
		}
		if !resp.More {
			return names, nil
		}
	}
}
