package schedlock

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"
)

// GocronCron is a GocronLocker for one job of gocron at times of day. It is also the job's
// gocron.Cron, and therefore knows the fire times.
type GocronCron[L interface{ Unlock(context.Context) error }] struct {
	*GocronLocker[L]
	*gocronTicks
}

// NewGocronCron returns a locker for one job. Pass it to that job twice:
//
//	daily, err := schedlock.NewGocronCron[gocron.Lock](lk, gocron.NewDefaultCron(false))
//	s.NewJob(gocron.CronJob("0 9 * * *", false), task, gocron.WithName("invoices"),
//		gocron.WithCronImplementation(daily), gocron.WithDistributedJobLocker(daily))
//
// Both are necessary: without WithCronImplementation the job is refused, and without
// WithDistributedJobLocker each process runs the job, and a warning is logged at the second fire
// time.
//
// gocron passes the name of the job with its calls for the lock, not before. Call Plan with the name, so that etcd has
// the plan of the job before the first fire time, as that of a Job, and knows which processes have it: an alert can find
// that the job never starts.
//
//	err = daily.Plan("invoices")
//
// Without Plan each claim stores the plan, as that of a call with Planned. When gocron runs the job no more, as after
// WithLimitedRuns, call Remove or, without Plan, Forget.
//
// cron has the fire times: gocron's own Cron, or another. RunNow of gocron runs the latest tick
// that has come, if it was not run. Fire times that gocron adds to those of its Cron, by
// DaylightSavingsTimeRunAfterTransition, are skipped. Those that gocron leaves out by itself, as the
// repeated hour of "0 * * * *" in autumn, have no trace in the history. Without LateBy, a tick starts before the next
// fire time or not at all, and Lock returns one second, or a tenth of an interval below ten
// seconds, before that: gocron skips a fire time that has passed when Lock returns.
//
// NewGocronCron returns ErrInvalid if cron is nil, an option is out of range, options contradict
// each other, or L has methods other than Unlock. What Job refuses of a schedule, NewJob of gocron
// refuses of the crontab.
func NewGocronCron[L interface{ Unlock(context.Context) error }](l *Locker, cron interface {
	IsValid(crontab string, location *time.Location, now time.Time) error
	Next(lastRun time.Time) time.Time
}, opts ...Option) (*GocronCron[L], error) {
	s, err := newSettings(0, opts)
	err = cmp.Or(err, s.onlyLost())
	if err == nil && cron == nil {
		err = invalid("the cron is nil")
	}
	if err != nil {
		return nil, fmt.Errorf("new gocron cron: %w", err)
	}
	g, err := newGocronLocker[L](l, s)
	if err != nil {
		return nil, err
	}
	c := &gocronSchedule{next: cron.Next, valid: cron.IsValid}
	g.ticks = &gocronTicks{plans: l.plans, times: timetable{schedule: c, stuck: warnOfStuck(l.log, "of gocron")}, settings: s, valid: c.IsValid, now: l.opts.Now, alone: func() {
		l.log.Warn("two fire times of a gocron job have come without a call for its lock: without the lock each process runs the job. Pass what NewGocronCron returned to gocron.WithDistributedJobLocker as well, not to WithCronImplementation alone")
	}}
	return &GocronCron[L]{g, g.ticks}, nil
}

// Plan sets the name of the job before gocron passes it on: the one that gocron.WithName has. As soon as gocron has
// set the crontab, in NewJob, etcd gets the plan of the job, so that it is listed as one that has never run, with its next fire
// time, and EtcdkitJobNotStarted rings if no process starts it. Plan can be called before NewJob and after it. It sends nothing to
// etcd before it returns.
//
// Plan returns ErrInvalid if the name is out of range, or if the locker belongs to a job of another name. From then on
// Lock returns ErrInvalid for another name.
func (g *GocronCron[L]) Plan(name string) error {
	err := checkName(name)
	if err == nil {
		err = g.is(name, true)
	}
	if err != nil {
		return fmt.Errorf("plan job %q for gocron: %w", name, err)
	}
	g.register()
	return nil
}

// Remove says that this process does not have the job any more, as Job.Remove does: call it after RemoveJob of gocron. Without
// Plan it does nothing. After ErrClosed, ctx's error or an error of etcd's the plan may be
// removed or not; it can be called again.
func (g *GocronCron[L]) Remove(ctx context.Context) error {
	l, t := g.locker, g.gocronTicks
	ctx, cancel := l.untilClose(ctx)
	defer cancel()
	t.mu.Lock()
	name, named := t.job, t.named
	t.planned = ""
	t.mu.Unlock()
	if !named {
		return nil
	}
	return l.about("remove", name, l.plans.remove(ctx, name, &t.times))
}

// gocronSchedule is a Cron of gocron that is safe for concurrent use: plans are written in the background, and IsValid sets
// the crontab again when gocron updates a job.
type gocronSchedule struct {
	mu    sync.RWMutex
	next  func(time.Time) time.Time
	valid func(string, *time.Location, time.Time) error
}

// Next returns the first fire time after t.
func (c *gocronSchedule) Next(t time.Time) time.Time {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.next(t)
}

// IsValid sets the crontab.
func (c *gocronSchedule) IsValid(crontab string, location *time.Location, now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.valid(crontab, location, now)
}

// gocronTicks has the fire times of one job of gocron.
type gocronTicks struct {
	plans    *planner
	times    timetable
	settings settings
	valid    func(string, *time.Location, time.Time) error
	now      func() time.Time
	alone    func() // called once if gocron does not ask for the lock

	mu      sync.Mutex
	set     bool      // gocron has set the crontab
	crontab string    // that it has set
	job     string    // that has asked for the lock, or was named by Plan; "" before that
	named   bool      // by Plan
	locked  bool      // it has asked for the lock
	planned string    // the job and the crontab of which the plan is stored, or ""
	last    time.Time // the first fire time, or the last one that followed one that had come
	passed  int       // fire times that have come while gocron had not asked for the lock
}

// IsValid is called by gocron: it sets the crontab. It returns an error of the Cron that was passed
// to NewGocronCron, and ErrInvalid for a crontab and options that Job would refuse.
func (t *gocronTicks) IsValid(crontab string, location *time.Location, now time.Time) error {
	if err := t.valid(crontab, location, now); err != nil {
		return err
	}
	if location == nil {
		location = now.Location()
	}
	t.times.in(crontab, location)
	if err := t.times.check(t.settings, now.In(location)); err != nil {
		return fmt.Errorf("crontab %q for gocron: %w", crontab, err)
	}
	t.mu.Lock()
	t.set, t.crontab = true, fmt.Sprintf("%s in %v", crontab, location)
	t.mu.Unlock()
	t.register()
	return nil
}

// register has the plan stored as soon as the crontab is known and Plan has named the job, and again when the crontab has changed.
func (t *gocronTicks) register() {
	t.mu.Lock()
	name, as := t.job, t.job+" "+t.crontab
	begin := t.set && t.named && t.planned != as
	if begin {
		t.planned = as
	}
	t.mu.Unlock()
	if begin {
		t.plans.add(name, &t.times)
	}
}

// Next is called by gocron: it returns the first fire time after the last run. Other callers may
// call it, too: the answer makes no tick.
func (t *gocronTicks) Next(lastRun time.Time) time.Time {
	next, _ := t.times.next(lastRun)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.locked || t.passed > 1 {
		return next
	}
	// gocron asks for the next fire time when one has come, possibly just before it asks for the lock
	// of that one. A page that displays fire times asks for the one after those to come.
	switch came := !lastRun.After(t.now().Add(early)); {
	case came && lastRun.Equal(t.last):
		t.last = next
		if t.passed++; t.passed > 1 {
			t.alone()
		}
	case came:
		t.last = next
	}
	return next
}

// belongsTo returns ErrInvalid if these are not the fire times of the job that asks for the lock.
func (t *gocronTicks) belongsTo(job string) error {
	err := t.is(job, false)
	t.mu.Lock()
	set := t.set
	t.locked = true
	t.mu.Unlock()
	if !set {
		return invalid("gocron asks another cron for the fire times: pass what NewGocronCron returned to gocron.WithCronImplementation as well")
	}
	return err
}

// unnamed reports whether Plan has not named the job: then no process is known to have it, and its plan is one by calls.
func (t *gocronTicks) unnamed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.named
}

// is takes the name of the job, from Plan or from gocron. It returns ErrInvalid if there is another one.
func (t *gocronTicks) is(job string, byPlan bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.job != "" && t.job != job {
		return invalid("the locker belongs to job %q: each job needs a NewGocronCron of its own, and Plan the name that gocron.WithName has", t.job)
	}
	t.job, t.named = job, t.named || byPlan
	return nil
}
