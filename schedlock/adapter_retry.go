package schedlock

import (
	"context"
	"time"

	"go.uber.org/zap"
)

// Retry has a tick whose run was lost started again, as Retries allows, by a call of again, which makes
// the scheduler call Start for the job once more, as the RunNow of a job of gocron does.
//
// Without Retry the call of Start itself is on standby: the scheduler waits for it. With Retry such a
// call returns at once, as Claimed, and the Locker is on standby in the background. Call Retry before the
// first Start. It has no effect without Retries.
func (a *Adapter) Retry(name string, again func() error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.again[name] = again
}

// request returns the request of a call of Start. If Retry was called for the job, the Locker is on
// standby in place of the call.
func (a *Adapter) request(name string) request {
	r := request{settings: a.settings, within: a.settings.lateBy, single: true} // the scheduler runs the task
	a.mu.Lock()
	again, lost := a.again[name], a.lost[name]
	r.starts = a.plan.starts
	delete(a.lost, name)
	a.mu.Unlock()
	if again == nil {
		return r
	}
	if !lost.tick.IsZero() && !a.passed(lost) { // otherwise the scheduler has dropped the call of again, and this one is for a later tick
		r.tick = lost.tick
	}
	r.standby = func(j *job, tick time.Time, r request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.watched[name] {
			return
		}
		a.locker.jobs.hold(name) // which is j: the call that is on standby holds it
		a.watched[name] = a.locker.sess.Callback(func() {
			free := a.waitLost(j, tick, r)
			a.locker.jobs.release(j)
			lost := lostTick{tick, a.locker.opts.Now()}
			a.mu.Lock()
			delete(a.watched, name)
			if free {
				a.lost[name] = lost
			}
			a.mu.Unlock()
			if !free {
				return
			}
			if err := again(); err != nil {
				a.mu.Lock()
				delete(a.lost, name)
				a.mu.Unlock()
				a.locker.log.Warn("a scheduler refused to run a job again whose run was lost", zap.String("job", name), zap.Time("tick", tick), zap.Error(err))
			}
		})
	}
	return r
}

// lostTick is a tick whose run was lost, and when the scheduler was asked for another call for it.
type lostTick struct{ tick, at time.Time }

// passed reports whether a fire time has come since the scheduler was asked for another call: a call that is made now is for that
// one. A fire time between the tick and then does not count; if it was claimed, the tick is refused as Late.
func (a *Adapter) passed(lost lostTick) bool {
	return a.latest(a.locker.opts.Now()).After(a.latest(lost.at))
}

// latest returns the fire time for which a call at a time is. It calls the schedule, which is the caller's.
func (a *Adapter) latest(at time.Time) time.Time {
	if every := a.settings.every; a.times == nil {
		return Periods(every).at(at.Add(min(early, every/10)))
	}
	tick, _, _ := a.times.due(at)
	return tick
}

// waitLost waits until the run of a tick has ended, and reports whether it was lost and another attempt
// may be made.
func (a *Adapter) waitLost(j *job, tick time.Time, r request) bool {
	l := a.locker
	r.standby = nil // this is the standby
	ctx, cancel := l.untilClose(context.Background())
	defer cancel()
	ctx, stop := r.starts.until(ctx)
	defer stop()
	ctx, intime := r.bound(ctx, tick, l.opts.Now())
	defer intime()
	k := &claim{Locker: l, job: j, request: r}
	var refused refusals
	for {
		next, err := k.obstacle(ctx, plan{tick: tick})
		if err == nil {
			return next.action == send
		}
		if refused.await(ctx, k, err) != nil {
			return false
		}
	}
}
