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
	g.ticks = &gocronTicks{times: timetable{schedule: cron, stuck: warnOfStuck(l.log, "of gocron")}, settings: s, valid: cron.IsValid, now: l.opts.Now, alone: func() {
		l.log.Warn("two fire times of a gocron job have come without a call for its lock: without the lock each process runs the job. Pass what NewGocronCron returned to gocron.WithDistributedJobLocker as well, not to WithCronImplementation alone")
	}}
	return &GocronCron[L]{g, g.ticks}, nil
}

// gocronTicks has the fire times of one job of gocron.
type gocronTicks struct {
	times    timetable
	settings settings
	valid    func(string, *time.Location, time.Time) error
	now      func() time.Time
	alone    func() // called once if gocron does not ask for the lock

	mu     sync.Mutex
	set    bool      // gocron has asked for fire times
	job    string    // that has asked for the lock, or "" before that
	last   time.Time // the first fire time, or the last one that followed one that had come
	passed int       // fire times that have come while gocron had not asked for the lock
}

// IsValid is called by gocron: it sets the crontab. It returns an error of the Cron that was passed
// to NewGocronCron, and ErrInvalid for a crontab and options that Job would refuse.
func (t *gocronTicks) IsValid(crontab string, location *time.Location, now time.Time) error {
	if err := t.valid(crontab, location, now); err != nil {
		return err
	}
	t.mu.Lock()
	t.set = true
	t.mu.Unlock()
	if location == nil {
		location = now.Location()
	}
	t.times.in(crontab, location)
	if err := t.times.check(t.settings, now.In(location)); err != nil {
		return fmt.Errorf("crontab %q for gocron: %w", crontab, err)
	}
	return nil
}

// Next is called by gocron: it returns the first fire time after the last run. Other callers may
// call it, too: the answer makes no tick.
func (t *gocronTicks) Next(lastRun time.Time) time.Time {
	next, _ := t.times.next(lastRun)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.job != "" || t.passed > 1 {
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

// belongsTo returns ErrInvalid if these are not the fire times of the job.
func (t *gocronTicks) belongsTo(job string) error {
	t.mu.Lock()
	set, owner := t.set, t.job
	if owner == "" {
		t.job = job
	}
	t.mu.Unlock()
	if !set {
		return invalid("gocron asks another cron for the fire times: pass what NewGocronCron returned to gocron.WithCronImplementation as well")
	}
	if owner != "" && owner != job {
		return invalid("the locker belongs to job %q: each job needs a NewGocronCron of its own", owner)
	}
	return nil
}
