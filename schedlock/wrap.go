package schedlock

import (
	"context"
	"fmt"
)

// Wrap returns a wrapper for jobs of a cron library, which runs the job that it is given as
// Locker.Do does. With robfig/cron it is a cron.JobWrapper:
//
//	only, err := schedlock.Wrap[cron.Job](lk, "sweep", schedlock.Every(time.Minute))
//	c.AddJob("@every 1m", only(sweep))
//
// A wrapper is not told for which fire time it is called, so it needs Every, with the
// period of the schedule. A Job knows its schedule: take Locker.Job where the times of day are what
// counts. The wrapped job gets no context: it does not hear that its run was lost, nor that
// AtMost, one hour by default, has passed. A job that goes on after that may overlap with its next
// run, which is logged as a warning; set AtMost above what it takes.
//
// Each job needs a wrapper of its own, with a name of its own, and an Every no longer than the
// time between two of its fire times: of two calls in one period one starts at most. If there
// are two, that is logged as a warning, once for each name. So it does not belong into cron.WithChain, which
// gives the same one to all jobs. Unless LateBy says otherwise, a tick starts within its
// period or not at all. Results go to Options.Done and the session's Logger, as those of
// Job.Run. It returns ErrInvalid if the name
// cannot be one, Every is missing, Tick or OnMisfire is given, or an option is out of
// range, and if J is not an interface with the one method Run.
func Wrap[J interface{ Run() }](l *Locker, name string, opts ...Option) (func(J) J, error) {
	if _, ok := any((*wrapped)(nil)).(J); !ok {
		return nil, invalid("job %q: the library's job has more methods than Run", name)
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	s, err := newSettings(opts)
	if err == nil {
		err = s.periodic()
	}
	if err == nil {
		err = l.job(name).use(s.fingerprint())
	}
	if err != nil {
		return nil, fmt.Errorf("job %q: %w", name, err)
	}
	return func(inner J) J {
		job, _ := any(&wrapped{l, name, s, inner.Run}).(J)
		return job
	}, nil
}

// periodic checks the settings of one who is not told fire times, and completes them.
func (s *settings) periodic() error {
	switch {
	case s.hasTick:
		return invalid("Tick would be the same at each call")
	case s.hasMisfire:
		return invalid("OnMisfire is for a Job, which knows its schedule")
	case !s.hasEvery:
		return invalid("this adapter does not get the fire time: give Every, with the period of the schedule")
	}
	if !s.hasLate {
		s.lateBy, s.hasLate = s.every, true
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
	w.locker.report(w.locker.call(context.Background(), w.name, func(context.Context, *Run) error {
		w.work()
		return nil
	}, w.settings, w))
}

// call is do for one that does not know its fire times, with the result reported to Options.Done.
func (l *Locker) call(ctx context.Context, name string, fn Func, s settings, by any) (res Result, err error) {
	defer l.tell(&res, &err)
	if !s.hasTick {
		l.second(name, by, s.tickAt(l.opts.now()), true)
	}
	return l.do(ctx, name, fn, s)
}
