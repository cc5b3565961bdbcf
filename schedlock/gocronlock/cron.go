package gocronlock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/schedlock"
)

// Cron is a Locker for one job of gocron at times of day. It is also the job's gocron.Cron, and
// therefore knows the fire times.
type Cron[L interface{ Unlock(context.Context) error }] struct {
	*Locker[L]
	fires *fires
}

// NewCron returns a locker for one job. Pass it to that job twice:
//
//	daily, err := gocronlock.NewCron[gocron.Lock](lk, gocron.NewDefaultCron(false))
//	if err != nil {
//		return err
//	}
//	_, err = s.NewJob(gocron.CronJob("0 9 * * *", false), task, gocron.WithName("invoices"),
//		gocron.WithCronImplementation(daily), gocron.WithDistributedJobLocker(daily))
//
// Both are necessary: without WithCronImplementation the job is refused, and without
// WithDistributedJobLocker each process runs the job, and a warning is logged at the second fire
// time.
//
// gocron passes the name of the job with its calls for the lock, not before. Call Plan with the name, so that etcd has
// the plan of the job before the first fire time, as that of a schedlock.Job, and knows which processes have it: an alert can find
// that the job never starts.
//
//	err = daily.Plan("invoices")
//
// Without Plan each claim stores the plan, as that of a call with schedlock.Planned. When gocron runs the job no more, as after
// WithLimitedRuns, call Remove, so that its settings are not in force any more. Forget of the schedlock.Locker removes what etcd
// has of the job when no process lives that has it or has claimed a recorded tick.
//
// cron has the fire times: gocron's own Cron, or another. RunNow of gocron runs the latest tick
// that has come, if it was not run. Fire times that gocron adds to those of its Cron, by
// DaylightSavingsTimeRunAfterTransition, are skipped. Those that gocron leaves out by itself, as the
// repeated hour of "0 * * * *" in autumn, have no trace in the history. Without schedlock.LateBy, a tick starts before the next
// fire time or not at all, and Lock returns one second, or a tenth of an interval below ten
// seconds, before that: gocron skips a fire time that has passed when Lock returns.
//
// NewCron returns ErrInvalid if cron is nil, an option is out of range, options contradict
// each other, or L has methods other than Unlock. What schedlock.Locker.Job refuses of a schedule, NewJob of gocron
// refuses of the crontab.
func NewCron[L interface{ Unlock(context.Context) error }](l *schedlock.Locker, cron interface {
	IsValid(crontab string, location *time.Location, now time.Time) error
	Next(lastRun time.Time) time.Time
}, opts ...schedlock.Option) (*Cron[L], error) {
	s := &schedule{}
	g, err := newLocker[L](l, s, opts)
	if err == nil && cron == nil {
		err = invalid("the cron is nil")
	}
	if err != nil {
		return nil, fmt.Errorf("new cron for gocron: %w", err)
	}
	s.next, s.valid = cron.Next, cron.IsValid
	f := &fires{adapter: g.adapter, schedule: s}
	g.asked = f.asked
	return &Cron[L]{g, f}, nil
}

// IsValid is called by gocron: it sets the crontab. It returns an error of the Cron that was passed
// to NewCron, and ErrInvalid for a crontab and options that schedlock.Locker.Job would refuse.
func (g *Cron[L]) IsValid(crontab string, location *time.Location, now time.Time) error {
	return g.fires.set(crontab, location, now)
}

// Next is called by gocron: it returns the first fire time after the last run. Other callers may
// call it, too: the answer makes no tick.
func (g *Cron[L]) Next(lastRun time.Time) time.Time { return g.fires.after(lastRun) }

// Plan sets the name of the job before gocron passes it on: the one that gocron.WithName has. As soon as gocron has
// set the crontab, in NewJob, etcd gets the plan of the job, so that it is listed as one that has never run, with its next fire
// time, and EtcdkitJobNotStarted rings if no process starts it. Plan can be called before NewJob and after it. It sends nothing to
// etcd before it returns.
//
// Plan returns ErrInvalid if the name is out of range, or if the locker belongs to a job of another name. From then on
// Lock returns ErrInvalid for another name.
func (g *Cron[L]) Plan(name string) error {
	return g.adapter.Plan(name)
}

// Remove says that this process does not have the job any more, as schedlock.Job.Remove does: call it after RemoveJob of gocron. Until
// gocron sets the crontab again, Lock returns ErrInvalid. Without Plan the plan that a claim has stored stays, for the other
// processes. After ErrClosed, ctx's error or an error of etcd's the plan may be removed or not; it can be called again.
func (g *Cron[L]) Remove(ctx context.Context) error { return g.adapter.Remove(ctx) }

// schedule is a Cron of gocron that is safe for concurrent use: plans are written in the background, and IsValid sets
// the crontab again when gocron updates a job.
type schedule struct {
	mu    sync.RWMutex
	next  func(time.Time) time.Time
	valid func(string, *time.Location, time.Time) error
}

// Next returns the first fire time after t.
func (s *schedule) Next(t time.Time) time.Time {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.next(t)
}

func (s *schedule) set(crontab string, location *time.Location, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.valid(crontab, location, now)
}

// early is how much too early a timer may fire.
const early = 50 * time.Millisecond

// fires are the fire times of one job of gocron. They notice the mistakes in which gocron has them, or the
// locker, alone.
type fires struct {
	adapter  *schedlock.Adapter
	schedule *schedule

	mu     sync.Mutex
	known  bool      // gocron has set the crontab
	locked bool      // gocron has asked for the lock
	last   time.Time // the first fire time, or the last one that followed one that had come
	passed int       // fire times that have come while gocron had not asked for the lock
}

// set sets the crontab.
func (f *fires) set(crontab string, location *time.Location, now time.Time) error {
	if err := f.schedule.set(crontab, location, now); err != nil {
		return err
	}
	if err := f.adapter.SetCrontab(crontab, location, now); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known = true
	return nil
}

// after returns the first fire time after t. It warns, once, if gocron has asked for fire times and not for
// the lock.
func (f *fires) after(t time.Time) time.Time {
	next := f.adapter.Next(t)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.locked || f.passed > 1 {
		return next
	}
	// gocron asks for the next fire time when one has come, possibly just before it asks for the lock
	// of that one. A page that displays fire times asks for the one after those to come.
	switch came := !t.After(f.adapter.Now().Add(early)); {
	case came && t.Equal(f.last):
		f.last = next
		if f.passed++; f.passed > 1 {
			f.adapter.Logger().Warn("two fire times of a gocron job have come without a call for its lock: without the lock each process runs the job. Pass what NewCron returned to gocron.WithDistributedJobLocker as well, not to WithCronImplementation alone")
		}
	case came:
		f.last = next
	}
	return next
}

// asked records that gocron asks for the lock. It returns ErrInvalid if gocron has set no crontab.
func (f *fires) asked() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.locked = true
	if !f.known {
		return invalid("gocron asks another cron for the fire times: pass what NewCron returned to gocron.WithCronImplementation as well")
	}
	return nil
}
