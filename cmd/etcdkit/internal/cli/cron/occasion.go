package cron

import (
	"fmt"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/crontab"
	"github.com/etcdkit/etcdkit/schedlock"
)

// This file decides what a call of `jobs run` does about a job, from its clock, its schedule and the latest record. Nothing
// here waits or asks etcd.

// occasion is one call of a scheduled command.
type occasion struct {
	now   time.Time
	every time.Duration    // the time between two calls of one machine; or
	cron  crontab.Schedule // the line that calls
	host  string           // the owner of this process's claims, up to the number of the process

	standby bool // the call has waited for the run, which has ended since
}

// verdict is what a call does.
type verdict struct {
	start  bool          // claim the tick, which is apart from others
	tick   time.Time     // otherwise that of the record that counts
	apart  time.Duration // or 0
	follow bool          // the tick was claimed for this occasion: on standby until its run has ended
	reason string        // why neither
	active bool          // the reason holds only if the run is active for longer than the lease of a dead process
	missed time.Time     // a time of the schedule for which a tick by hand was claimed, unless it has a record; or zero
}

// An hour is missing in the night in which clocks go forward, and timers are late: leastNightly is what both need, for
// calls that are so far apart that the hour can be between them (hourly), and mostNightly bounds what is allowed for them.
// clocksApart is what the clocks of two machines may differ by.
const (
	hourly       = 2 * time.Hour
	leastNightly = 70 * time.Minute
	mostNightly  = 90 * time.Minute
	clocksApart  = time.Minute
)

// apartBy returns the least time between two ticks of --every.
func apartBy(every time.Duration) time.Duration {
	less := every / 4
	if every >= hourly {
		less = max(less, leastNightly)
	}
	return every - min(less, mostNightly)
}

// schedule returns the schedule by which calls are made, and by how much they may come later: with --every by as much as
// earlier, since a night in autumn has an hour more.
func (o occasion) schedule() (schedlock.Schedule, time.Duration) {
	if o.every > 0 {
		return schedlock.Crontab{Text: "every " + o.every.String(), Schedule: distance(o.every)}, o.every - apartBy(o.every)
	}
	return schedlock.Crontab{Text: o.cron.Text(), Zone: o.cron.Location(), Schedule: o.cron}, 0
}

// distance is the schedule of --every: the next call comes so long after the one before.
type distance time.Duration

// Next returns the time of the call after one at t.
func (d distance) Next(t time.Time) time.Time { return t.Add(time.Duration(d)) }

// early is how much a call may come before its fire time: a clock that has been set back a little has called it.
func (o occasion) early() time.Duration {
	next := o.cron.Next(o.now)
	if next.IsZero() {
		return 0
	}
	return min(o.cron.Next(next).Sub(next)/10, clocksApart/2)
}

// due returns the tick that a call is for, or the zero time if the schedule has none. With --every it is the time of the
// call.
func (o occasion) due() time.Time {
	if o.every > 0 {
		return o.now
	}
	return o.cron.Latest(o.now.Add(max(0, o.early())))
}

// interval returns the time from a tick to the next one.
func (o occasion) interval(tick time.Time) time.Duration {
	if o.every > 0 {
		return o.every
	}
	next := o.cron.Next(tick)
	if next.IsZero() {
		return 366 * 24 * time.Hour
	}
	return next.Sub(tick)
}

// decide decides, by the latest record whose tick is not beyond clocksApart in the future; nil if there is none.
func (o occasion) decide(last *schedlock.Record) verdict {
	tick := o.due()
	if tick.IsZero() {
		return verdict{reason: "--cron has no fire time that has come"}
	}
	claim := verdict{start: true, tick: tick}
	if o.every > 0 {
		claim.apart = apartBy(o.every)
	}
	if last == nil {
		return claim
	}
	between := tick.Sub(last.Tick)
	if o.every > 0 && between >= claim.apart || o.every == 0 && between > 0 {
		return claim
	}
	v := o.taken(*last)
	if (v.follow || last.State == schedlock.RunFailed) && o.every == 0 && between < 0 && !o.cron.Latest(last.Tick).Equal(last.Tick) {
		v.missed = tick
	}
	return v
}

// taken decides about an occasion whose tick was claimed already. Its run counts for this call only if it is young, or has not
// been carried out.
func (o occasion) taken(last schedlock.Record) verdict {
	claimed := last.Tick
	if last.Start.After(claimed) { // it was claimed late
		claimed = last.Start
	}
	age := max(0, o.now.Sub(claimed))
	v := verdict{tick: last.Tick, active: last.State == schedlock.RunActive}
	tick, ago := output.Instant(last.Tick), age.Round(time.Second)
	here := age > clocksApart && o.host == machineOf(last.Owner)
	switch {
	case last.State == schedlock.RunLost, last.State == schedlock.RunUnlocked, last.State == schedlock.RunUnreadable:
		return verdict{tick: last.Tick, follow: true}
	case age >= o.interval(last.Tick)/2:
		v.reason = fmt.Sprintf("the latest run, of tick %s, is %v old: too old to be the one of this call, and too young for another "+
			"one; compare the line that makes the calls with --every, or with --cron and --zone", tick, ago)
	case last.State == schedlock.RunFailed && !o.standby:
		v.reason = fmt.Sprintf("the run of tick %s by %s has failed, and is not repeated: %s", tick, output.OrDash(last.Owner), last.Error)
		if o.every == 0 {
			v.reason += "; --now repeats it"
		}
	case here && v.active:
		v.reason = fmt.Sprintf("this machine runs tick %s, for %v by now: calls are more frequent than --every or --cron says", tick, ago)
	case here:
		v.reason = fmt.Sprintf("this machine has run tick %s already, %v ago: calls are more frequent than --every or --cron says", tick, ago)
	default:
		return verdict{tick: last.Tick, follow: true}
	}
	return v
}

// machineOf returns an owner up to the number of its process.
func machineOf(owner string) string {
	machine, _, _ := strings.Cut(owner, ", process ")
	return machine
}

// skippedReason says why a claim was refused, for outcomes by which nothing was run.
func skippedReason(res schedlock.Result) string {
	switch res.Outcome {
	case schedlock.Paused:
		if p := res.Paused; p != nil && p.By != "" {
			return fmt.Sprintf("the job is paused, by %s: %s", p.By, output.OrDash(p.Reason))
		}
		return "the job is paused"
	case schedlock.StillRunning:
		return "the run before is active, by " + output.OrDash(res.Owner)
	case schedlock.Late:
		return "it is too late: a later tick was claimed"
	}
	return "it was not run: " + res.Outcome.String()
}
