package schedlock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/internal/commit"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Schedule tells fire times: the next one after t, or the zero time if there is none. It
// is the Schedule of robfig/cron. Time zones and summer time are its business: a tick is
// the instant that it returns.
type Schedule interface {
	Next(t time.Time) time.Time
}

// Job is a job together with its schedule, for cron libraries. It is both the job and
// the schedule that robfig/cron asks for, so that a run knows for which fire time it was
// made:
//
//	job, err := lk.Job("invoices", schedule, send)
//	c.Schedule(job, job)
//
// It is safe for concurrent use.
type Job struct {
	locker   *Locker
	name     string
	schedule Schedule
	fn       Func
	settings settings

	mu      sync.Mutex
	planned []time.Time   // fire times that were told and have not come, in order
	newest  time.Time     // the latest tick that has come
	passed  chan struct{} // closed when a later one comes
	begun   bool
}

// Job returns a job for a cron library. It does no I/O. Any option but Tick and Every may
// be given. It returns ErrInvalid if the name cannot be one, the schedule or the
// function is nil, or an option is out of range.
//
// Unless LateBy says otherwise, a tick starts before the next fire time or not at all;
// with OnMisfire(Once), before the next one has come here.
func (l *Locker) Job(name string, schedule Schedule, fn Func, opts ...Option) (*Job, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	s, err := newSettings(opts)
	switch {
	case err != nil:
	case schedule == nil:
		err = invalid("the schedule is nil")
	case fn == nil:
		err = invalid("the function is nil")
	case s.hasTick:
		err = invalid("Tick is what the schedule of a Job tells")
	case s.hasEvery:
		err = invalid("Every(%v) contradicts a schedule", s.every)
	}
	if err == nil {
		err = l.job(name).use(s.fingerprint())
	}
	if err != nil {
		return nil, fmt.Errorf("job %q: %w", name, err)
	}
	return &Job{locker: l, name: name, schedule: schedule, fn: fn, settings: s}, nil
}

// Next returns the schedule's next fire time and remembers it for Run. The first call, by
// which a cron library begins, also looks for ticks that were missed before, see
// OnMisfire, and for one that was lost and may be started again, see Retries.
func (j *Job) Next(t time.Time) time.Time {
	next := j.schedule.Next(t)
	j.mu.Lock()
	defer j.mu.Unlock()
	if i, known := slices.BinarySearchFunc(j.planned, next, time.Time.Compare); !known && !next.IsZero() {
		j.planned = slices.Insert(j.planned, i, next)
	}
	if !j.begun {
		j.begun = true
		if j.settings.misfire == Once || j.settings.retries > 0 {
			j.locker.sess.Background(j.catchUp)
		}
	}
	return next
}

// early is by how much a timer may be ahead of its time.
const early = 50 * time.Millisecond

// due returns the fire time for which Run is called now: the earliest that has come and
// was not run. A call at another time is a tick of its own.
func (j *Job) due(now time.Time) time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.planned) == 0 || j.planned[0].After(now.Add(early)) {
		return now
	}
	tick := j.planned[0]
	j.planned = j.planned[1:]
	return tick
}

// Run runs the tick that has come, as Locker.Do does; the result goes to Options.Done.
// It is what a cron library calls.
func (j *Job) Run() { _, _ = j.RunContext(context.Background()) }

// RunContext is Run with a ctx and results: those of Locker.Do, with its errors, ErrLost
// and ErrTooLong among them.
func (j *Job) RunContext(ctx context.Context) (Result, error) {
	return j.run(ctx, j.due(j.locker.opts.now()), j.settings)
}

// run runs one tick, unless a later one has come.
func (j *Job) run(ctx context.Context, tick time.Time, s settings) (res Result, err error) {
	if done := j.locker.opts.Done; done != nil {
		defer func() { done(res, err) }()
	}
	j.mu.Lock()
	if tick.Before(j.newest) {
		j.mu.Unlock()
		return Result{Job: j.name, Tick: tick.UTC(), Outcome: Late}, nil
	}
	if tick.After(j.newest) {
		if j.passed != nil {
			close(j.passed)
		}
		j.newest, j.passed = tick, make(chan struct{})
	}
	s.tick, s.hasTick, s.passed = tick, true, j.passed
	j.mu.Unlock()
	if !s.hasLate && s.misfire == Skip {
		if next := j.schedule.Next(tick); !next.IsZero() {
			s.lateBy, s.hasLate = next.Sub(tick), true
		}
	}
	return j.locker.do(ctx, j.name, j.fn, s)
}

// catchUp looks for the latest tick that should have started before now.
func (j *Job) catchUp() {
	l := j.locker
	ctx, cancel := l.sess.Open(l.sess.Context())
	defer cancel()
	var pause commit.Backoff
	for {
		last, known, err := l.latest(ctx, l.job(j.name))
		if err == nil {
			s := j.settings
			if known && s.misfire == Once {
				if missed, ok := j.missed(last, l.opts.now()); ok {
					_, _ = j.run(ctx, missed, s)
					return
				}
			}
			if known && s.retries > 0 {
				s.hasLate, s.misfire = false, Once
				_, _ = j.run(ctx, last, s)
			}
			return
		}
		if pause.Wait(ctx, err) != nil {
			return
		}
	}
}

// missed returns the latest fire time between last and now. It looks near now first, so
// that a long outage of a busy schedule costs little.
func (j *Job) missed(last, now time.Time) (missed time.Time, ok bool) {
	for window := time.Minute; ; window *= 60 {
		from := now.Add(-window)
		whole := from.Before(last)
		if whole {
			from = last
		}
		for t := j.schedule.Next(from); !t.IsZero() && !t.After(now) && t.After(from); t = j.schedule.Next(t) {
			missed, ok, from = t, true, t
		}
		if ok || whole || window > 10*365*24*time.Hour {
			return missed, ok
		}
	}
}

// latest returns the latest tick that was claimed.
func (l *Locker) latest(ctx context.Context, j *job) (time.Time, bool, error) {
	call, cancel := commit.Call(ctx)
	defer cancel()
	resp, err := l.client.Get(call, j.keys.Runs(), clientv3.WithRange(j.keys.Run(l.horizon())), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend), clientv3.WithLimit(1))
	if err != nil || len(resp.Kvs) == 0 {
		return time.Time{}, false, err
	}
	tick, ok := j.keys.ParseRun(string(resp.Kvs[0].Key))
	return tick, ok, nil
}
