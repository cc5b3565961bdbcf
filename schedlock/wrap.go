package schedlock

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// Wrap returns a wrapper for jobs of a cron library. A wrapped job runs as the function of Locker.Do
// does: in each period at most one process of the fleet starts it. With robfig/cron the wrapper is a
// cron.JobWrapper:
//
//	only, err := schedlock.Wrap[cron.Job](lk, "sweep", time.Minute)
//	if err != nil {
//		return err
//	}
//	_, err = c.AddJob("@every 1m", only(sweep))
//
// A cron library does not pass the fire time to a job. So every, the period of the schedule, makes
// the ticks, as the option Every does. For jobs at times of day use Locker.Job, which knows its
// schedule. Without one there is no next fire time before the first run, and no alert that the job does not
// start: an alert on the age of its latest success replaces it (docs/observability.md, Jobs). When the library has removed
// the job, call Locker.Remove: otherwise its settings stay in force until the session ends.
//
// The wrapped job gets no context: it is not notified when its run is lost, nor when AtMost, one
// hour by default, has passed. A job that continues after AtMost may overlap with its next run, and
// a warning is logged. Set AtMost above the longest time that the job takes.
//
// Each job needs a wrapper and a name of its own, and a period no longer than the time between two
// of its fire times: of two calls in one period at most one starts. A second call in one period is
// logged as a warning, once for each name. (A job at a time of day comes twice in one day in UTC when
// the clocks go forward, and starts both times if the period is of whole days: so a second call of a process that comes 20 to 80
// minutes less than the period after its first one starts as that of the next day.) So do not pass the wrapper to cron.WithChain, which
// applies it to all jobs. Without LateBy, a tick starts within its period or not at all. Results go
// to Options.Done and the session's Logger, as those of Job.Run, and a request that etcd refuses is repeated as there.
//
// Wrap returns ErrInvalid if the name, the period or an option is out of range, if options
// contradict each other or the settings with which this process uses the job, and if J has methods
// other than Run.
func Wrap[J interface{ Run() }](l *Locker, name string, every time.Duration, opts ...Option) (func(J) J, error) {
	s, err := newPeriodic(every, opts)
	err = cmp.Or(checkName(name), err)
	if _, ok := any((*wrapped)(nil)).(J); !ok {
		err = invalid("the library's job has methods other than Run")
	}
	if l == nil {
		err = invalid("the Locker is nil")
	}
	if err == nil {
		err = l.job(name).use(s.fingerprint())
	}
	if err != nil {
		return nil, fmt.Errorf("wrap job %q: %w", name, err)
	}
	return func(inner J) J {
		job, _ := any(&wrapped{l, name, s, inner.Run}).(J)
		return job
	}, nil
}

// newPeriodic reads the options of an adapter whose calls come without their fire times.
func newPeriodic(every time.Duration, opts []Option) (settings, error) {
	if err := checkPeriod(fmt.Sprintf("the period %v", every), every); err != nil {
		return settings{}, err
	}
	s, err := newSettings(every, opts)
	return s, cmp.Or(err, s.onlyLost())
}

// onlyLost refuses RetryFailed for an adapter that cannot call the function again.
func (s settings) onlyLost() error {
	if s.failed.most > 0 {
		return invalid("RetryFailed: this adapter cannot call the function again, or does not learn of its error: use Locker.Job or Locker.Do")
	}
	return nil
}

// wrapped is one job within a wrapper.
type wrapped struct {
	locker   *Locker
	name     string
	settings settings
	work     func()
}

// Run runs the job for the present period, if it was not run for it.
func (w *wrapped) Run() {
	s := w.settings
	r := request{settings: s, periodic: true, within: cmp.Or(s.lateBy, s.every)}
	w.locker.reports.result(w.locker.call(context.Background(), w.name, func(context.Context, *Run) error {
		w.work()
		return nil
	}, r, w))
}
