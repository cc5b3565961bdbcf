package doctor

import (
	"context"
	"slices"
	"time"

	"github.com/etcdkit/etcdkit/internal/doctor"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/internal/ticks"
	"github.com/etcdkit/etcdkit/schedlock"
)

// runsOf returns what is judged of the history of a job, the latest run first.
func runsOf(records []schedlock.Record, now time.Time) (r doctor.Runs) {
	known := false
	last := func(state schedlock.State) { // the latest one that is over
		if !known && state != schedlock.RunActive {
			known, r.LastFailed = true, state == schedlock.RunFailed
		}
	}
	for _, one := range records {
		r.Add(string(one.State), one.State == schedlock.RunLost, one.Start, one.End, now)
		last(one.State)
		for _, e := range slices.Backward(one.Earlier) {
			last(e.State)
			if e.State == schedlock.RunLost {
				r.Repeat(e.Start, now)
			}
		}
	}
	return r
}

// unstarted returns the fire time that is due since the latest record and the latest resumption, if no process has
// started it for a while; or zero. It is zero, too, if a pause or a cooldown keeps the job from starting, but not during a run.
func (d *examination) unstarted(ctx context.Context, st schedlock.Status) (since time.Time, err error) {
	if st.CoolingDown && !st.Running || st.Paused != nil {
		return since, nil
	}
	if period, ok := record.PeriodOf(st.Settings); !ok || period < ticks.Smallest || st.Last == nil {
		if st.Running && st.Plan != nil && st.Plan.Expected(d.now()) {
			return st.Missed(d.now()), nil
		}
		return st.Overdue(d.now()), nil
	}
	space, err := d.call.Etcd.Space()
	if err != nil {
		return since, err
	}
	resp, err := d.client.Get(ctx, space.Job(st.Job).Operated())
	if err != nil {
		return since, err
	}
	var resumed time.Time
	for _, kv := range resp.Kvs {
		resumed = d.now() // of a later release it is not known: the job may have been paused until now
		if at, ok := record.DecodeOperated(kv.Value); ok || record.Later(kv.Value) == 0 {
			resumed = record.Time(min(at.AtMS, resumed.UnixMilli())) // of another clock
		}
	}
	return ticks.Unstarted(dueOf(st, resumed, d.now()), d.now()), nil
}

// dueOf returns by when a job that has run is to start, by its period. A fire time that came during the latest run was
// skipped. A start and an end that have not come yet are of a wrong clock, and do not count.
func dueOf(st schedlock.Status, resumed, now time.Time) time.Time {
	latest, ended := resumed, st.Last.End
	if !record.HasCome(millis(ended), now) {
		ended = time.Time{}
	}
	if st.Last.Tick.After(latest) {
		latest = st.Last.Tick
	}
	if least := record.LeastOf(st.Settings); least > 0 && record.HasCome(millis(st.Last.Start), now) {
		run := record.Run{State: string(st.Last.State), StartMS: millis(st.Last.Start), EndMS: millis(ended), CooledMS: millis(st.Last.Cooled)}
		if free := record.Time(run.Free(least)); free.After(latest) {
			latest = free
		}
	}
	period, _ := record.PeriodOf(st.Settings)
	next := ticks.Next(period, latest)
	if !next.Before(st.Last.Start) && !next.After(ended) {
		next = ticks.Next(period, ended)
	}
	return next
}

// millis is a time as it is stored, 0 for the zero time.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
