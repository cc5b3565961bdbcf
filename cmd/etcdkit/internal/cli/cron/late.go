package cron

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/crontab"
	"github.com/etcdkit/etcdkit/schedlock"
)

// This file bounds how long after its time a line of a crontab is started.

// settingsOf returns the options of the job of a line.
func settingsOf(j crontab.Job, ttl time.Duration) []schedlock.JobOption {
	opts := []schedlock.JobOption{schedlock.AtMost(cmp.Or(j.AtMost, unbounded)), schedlock.Retries(j.Retries)}
	if late := lateness(j, ttl); late > 0 {
		opts = append(opts, schedlock.LateBy(late))
	}
	return opts
}

// lateness returns how long after its time a line may still be started, or 0 if that is until the next time. Without late-by it is
// as for a call of jobs run, see patience. Further attempts obey it too: with retries it has room for runs that are lost at their
// end, and there is no bound for runs that have none.
func lateness(j crontab.Job, ttl time.Duration) time.Duration {
	if j.LateBy > 0 {
		return j.LateBy
	}
	shortest := j.Schedule.Shortest()
	late := min(shortest/2, mostPatient)
	if j.Retries == 0 {
		return late
	}
	if j.AtMost == 0 || j.AtMost >= shortest {
		return 0
	}
	late += time.Duration(j.Retries) * (j.AtMost + ttl + lossSeen)
	if late >= shortest {
		return 0
	}
	return late
}

// sayUnstarted says that a time of a line was started by no machine before it was too late. That a later time has come is no news.
func (v *cronRun) sayUnstarted(ctx context.Context, l *schedlock.Locker, jobs []crontab.Job, res schedlock.Result, now func() time.Time) {
	i := slices.IndexFunc(jobs, func(j crontab.Job) bool { return j.Name == res.Job })
	if i < 0 || res.Outcome != schedlock.Late || res.Tick.IsZero() {
		return
	}
	ttl, _, _ := v.Times()
	late := lateness(jobs[i], ttl)
	if late == 0 || now().Before(res.Tick.Add(late)) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, v.Call.Etcd.Timeout)
	defer cancel()
	if _, err := l.Get(ctx, res.Job, res.Tick); errors.Is(err, schedlock.ErrGone) {
		v.Say("%s: tick %s: not run: no machine had started it %v after its time, and now it is too late; late-by= in the comment above line %d changes that",
			res.Job, output.Instant(res.Tick), late, jobs[i].Line)
	}
}
