package schedlock

import (
	"cmp"
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/record"
)

// catchUp starts the latest missed tick or, if there is none, another attempt of a lost run.
func (j *Job) catchUp() {
	l := j.locker
	life, end := l.own() // of the runs, since Close waits for them
	defer end()
	ctx, cancel := l.untilClose(life)
	defer cancel()
	ctx, stop := j.starts.until(ctx)
	defer stop()
	var pause commit.Backoff
	var before past
	for {
		job, s := l.job(j.name), j.settings
		_, changed := job.seen("")
		p, err := j.past(ctx)
		if err != nil {
			if pause.Wait(ctx, err) != nil {
				return
			}
			continue
		}
		if !before.due.IsZero() && before.last.Equal(p.last) { // this process may have stored its own plan since
			p.due = before.due
		}
		before = p
		var missed time.Time
		some := false
		if since := p.since(); s.misfire == Once && !since.IsZero() {
			missed, some = j.times.latest(since, l.opts.Now())
			some = some && !p.skipped(missed)
		}
		switch {
		case some && p.locked:
			// If that run is active, its end will show that the tick was skipped. If it was lost,
			// its lock disappears without an end, and the tick was missed.
			if waitEvent(ctx, l.sess.TTL(), changed) == nil {
				continue
			}
		case some:
			res, err := j.run(life, missed, true)
			if err == nil && res.Outcome == StillRunning {
				continue
			}
			l.reports.result(res, err)
		case s.repeats() && !p.last.IsZero():
			l.reports.result(j.run(life, p.last, true))
		}
		return
	}
}

// past is what is known of the ticks of a job that have come.
type past struct {
	last         time.Time // the latest tick that was claimed, or the zero time
	began, ended time.Time // of its run, with AtLeast
	due          time.Time // the first tick after it that was planned, if the schedule alone does not show that, or the zero time
	resumed      time.Time // the last Resume, or the zero time
	locked       bool      // an active run or a cooldown keeps the job from starting now
}

// skipped reports whether a fire time after the last claimed one was skipped although a process was
// alive: because the run was active, the job cooled down or was paused.
func (p past) skipped(tick time.Time) bool {
	return !tick.After(p.resumed) || !tick.Before(p.began) && !tick.After(p.ended)
}

// since returns the time after which a tick may have been missed, or zero if none can have been.
func (p past) since() time.Time {
	if !p.due.IsZero() {
		return p.due.Add(-smallest)
	}
	return p.last
}

// dueBy returns the first tick after the last claimed one that a stored plan has, or the zero time if the present schedule has
// that. The plan may be of the schedule that was in force before; or of the present one, written when that took its place.
func (p past) dueBy(plan record.Plan, times *timetable, atLeast time.Duration, now time.Time) time.Time {
	of := cmp.Or(plan.Schedule, plan.Former)
	switch from := p.began.Add(atLeast); {
	case p.last.IsZero():
		return record.Time(plan.DueMS)
	case of == "", ahead(plan, now): // nor is one of a wrong clock
		return time.Time{}
	case !sameSchedule(of, times.stored()):
		if due := plan.Due(p.last.UnixMilli()); due != 0 {
			return record.Time(due)
		}
		return now
	case from.Before(p.last):
		from = p.last
		fallthrough
	default:
		if next := times.after(from); !next.IsZero() && plan.DueMS > next.UnixMilli() {
			return record.Time(plan.DueMS)
		}
	}
	return time.Time{}
}

// past reads what is known of the ticks that have come.
func (j *Job) past(ctx context.Context) (past, error) {
	l, keys, atLeast := j.locker, j.locker.space.Job(j.name), j.settings.atLeast
	kvs, err := l.get(ctx, func() []clientv3.Op {
		return []clientv3.Op{
			clientv3.OpGet(keys.Runs(), clientv3.WithRange(keys.Run(l.horizon())),
				clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend), clientv3.WithLimit(1)),
			clientv3.OpGet(keys.Lock()), clientv3.OpGet(keys.Cooldown()), clientv3.OpGet(keys.Operated()), clientv3.OpGet(keys.Plan()),
		}
	})
	if err != nil {
		return past{}, err
	}
	freed, err := endOrphaned(ctx, l, state{lock: kvs[1], cooldown: kvs[2]})
	if err != nil {
		return past{}, err
	}
	p := past{locked: len(kvs[1])+len(kvs[2]) > 0 && !freed}
	if len(kvs[0]) > 0 {
		p.last, _ = keys.ParseRun(string(kvs[0][0].Key))
		r, _ := record.DecodeRun(kvs[0][0].Value)
		p.began, p.ended = time.UnixMilli(r.StartMS), time.UnixMilli(r.Free(atLeast))
		if r.Attempt > 1 {
			p.began = p.last // of the earlier attempts only that is known
		}
		if later(kvs[0][0]) { // it may have been active until now
			p.began, p.ended = p.last, l.opts.Now()
		}
	}
	// Each run of a Job stores the plan, and its removal leaves the schedule. There is none if the runs had no schedule here,
	// or if a claim or a plan was removed while etcd was out of space: then the last tick is one of the schedule's, as a rule.
	switch {
	case len(kvs[4]) > 0:
		plan, _ := record.DecodePlan(kvs[4][0].Value)
		p.due = p.dueBy(plan, &j.times, atLeast, l.opts.Now())
	case !p.last.IsZero() && !j.times.fires(p.last): // no sign that this schedule was in force
		p.due = l.opts.Now()
	}
	if len(kvs[3]) > 0 { // possibly by Pause, but no tick can be claimed while the job is paused
		r, _ := record.DecodeOperated(kvs[3][0].Value)
		// A claim after it shows that it concerns no tick after that one, whatever the clocks say.
		if at := cmp.Or(r.Revision, kvs[3][0].ModRevision); len(kvs[0]) == 0 || kvs[0][0].CreateRevision < at {
			p.resumed = time.UnixMilli(r.AtMS)
			// Nor does it come before what a process of the job has written earlier, by a clock of the fleet.
			if len(kvs[4]) > 0 && kvs[4][0].ModRevision < at {
				plan, _ := record.DecodePlan(kvs[4][0].Value)
				p.resumed = time.UnixMilli(max(r.AtMS, plan.AliveMS))
			}
			if later(kvs[3][0]) { // the job may have been paused until now
				p.resumed = l.opts.Now()
			}
		}
	}
	return p, nil
}
