package schedlock

import (
	"context"
	"fmt"
	"time"
)

// The schedule of an Adapter, and the plan of its job.

// adapterPlan is what an Adapter knows of its schedule and its job. Adapter.mu guards it.
type adapterPlan struct {
	crontab string  // with its zone, as the scheduler has set it, or ""
	job     string  // for which Start was called, or that Plan has named; "" before that
	named   bool    // by Plan
	stored  string  // the job and the crontab of which the plan is stored, or ""
	starts  *starts // of the calls of Start until Remove; nil before the crontab is set
}

// SetCrontab sets the text from which the scheduler has parsed the schedule, and the zone in which it is
// asked: a scheduler may pass both after the Adapter was made, and may change them. zone may be nil for
// that of now. It returns ErrInvalid for what Locker.Job refuses of a schedule, and keeps the former text and
// zone then: if the scheduler has changed its schedule already, it must not use the Adapter until another
// crontab is set.
func (a *Adapter) SetCrontab(text string, zone *time.Location, now time.Time) error {
	if zone == nil {
		zone = now.Location()
	}
	err := invalid("the ticks are periods, which have no crontab")
	if a.times != nil {
		err = (&timetable{schedule: a.times.schedule, text: text, zone: zone}).check(a.settings, now.In(zone))
	}
	if err != nil {
		return fmt.Errorf("set crontab %q: %w", text, err)
	}
	a.times.in(text, zone)
	a.mu.Lock()
	a.plan.crontab = fmt.Sprintf("%s in %v", text, zone)
	a.mu.Unlock()
	a.storePlan()
	return nil
}

// Next returns the first fire time after t, in the location of t. The answer makes no tick. It is zero if
// the ticks are periods.
func (a *Adapter) Next(t time.Time) time.Time {
	if a.times == nil {
		return time.Time{}
	}
	next, _ := a.times.next(t)
	return next
}

// Plan names the job of an Adapter with a crontab before its first call. As soon as SetCrontab has been
// called, etcd gets the plan of the job, so that it is listed as one that has never run, with its next
// fire time, and EtcdkitJobNotStarted rings if no process starts it. Without Plan each claim stores the
// plan, as that of a call with Planned. Plan sends nothing to etcd before it returns. It returns
// ErrInvalid if the name is out of range, the Adapter belongs to another job, or the ticks are periods.
func (a *Adapter) Plan(name string) error {
	err := checkName(name)
	if err == nil && a.times == nil {
		err = invalid("the ticks are periods, so the next fire time is not known")
	}
	if err == nil {
		a.mu.Lock()
		err = a.plan.take(name)
		a.plan.named = a.plan.named || err == nil
		a.mu.Unlock()
	}
	if err != nil {
		return fmt.Errorf("plan job %q: %w", name, err)
	}
	a.storePlan()
	return nil
}

// take takes the name of the job. It returns ErrInvalid if there is another one.
func (p *adapterPlan) take(job string) error {
	if p.job != "" && p.job != job {
		return invalid("the adapter belongs to job %q: each job needs one of its own, and Plan the name with which the scheduler calls (that of gocron.WithName)", p.job)
	}
	p.job = job
	return nil
}

// accept returns ErrInvalid if the adapter cannot start ticks of a job of that name.
func (a *Adapter) accept(name string) error {
	if err := checkName(name); err != nil || a.times == nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.plan.crontab == "" {
		return invalid("the schedule has no crontab: call SetCrontab first")
	}
	return a.plan.take(name)
}

// isPlanned reports whether Plan has named the job: otherwise no process is known to have it, and its
// plan is one by calls.
func (a *Adapter) isPlanned() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.plan.named
}

// storePlan has the plan stored as soon as the crontab and the job are known, and again when the crontab
// has changed.
func (a *Adapter) storePlan() {
	a.mu.Lock()
	p := &a.plan
	name, as := p.job, p.job+" "+p.crontab
	if p.crontab != "" && (p.starts == nil || p.starts.over()) {
		p.starts = newStarts()
	}
	begin := p.crontab != "" && p.named && p.stored != as
	if begin {
		p.stored = as
	}
	a.mu.Unlock()
	if begin {
		a.locker.plans.add(name, a.times)
	}
}

// Remove says that this process does not have the job any more, as Job.Remove does: Start returns ErrInvalid until
// SetCrontab or Plan is called again. Without Plan the plan that a claim has stored stays, for the other processes. Remove
// returns ErrInvalid if the ticks are periods: Locker.Remove takes the names of such jobs. After ErrClosed, ctx's error or an
// error of etcd's the plan may be removed or not; it can be called again.
func (a *Adapter) Remove(ctx context.Context) error {
	l := a.locker
	if a.times == nil {
		return fmt.Errorf("remove the job of an adapter: %w", invalid("the ticks are periods, so the adapter is for any number of jobs: call Locker.Remove with the name of each"))
	}
	ctx, cancel := l.untilClose(ctx)
	defer cancel()
	a.mu.Lock()
	name, named, starts := a.plan.job, a.plan.named, a.plan.starts
	a.plan.stored = ""
	starts.end() // here, so that a Plan or SetCrontab that comes after this finds that it has ended
	a.mu.Unlock()
	switch {
	case name == "": // no call has named it
		return nil
	case !named:
		return l.about("remove", name, l.plans.unuse(ctx, name, starts))
	}
	return l.about("remove", name, l.plans.remove(ctx, name, a.times, starts))
}
