package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/etcdkit/etcdkit/internal/examples/child"
	"github.com/etcdkit/etcdkit/internal/examples/program"
	"github.com/etcdkit/etcdkit/internal/hostclock"
)

// The faults.
const (
	killed = "killed"
	paused = "paused"
)

// fault kills or pauses the process that runs a job, in the middle of the run.
type fault struct {
	Job  string `json:"job"`
	What string `json:"what"`
	nth  int    // fire time of the job, from 0

	tick   time.Time
	worker string // the process, or "" if the fault did not happen
	at     int64
}

// plannedFaults come one after the other, so that no two processes are down at the same time, and no
// fault comes before the run that the previous one interrupted has been repeated.
func plannedFaults() []*fault {
	all := []*fault{{Job: billing, What: killed, nth: 0}, {Job: billing, What: paused, nth: 1}, {Job: backup, What: killed, nth: 1}, {Job: backup, What: paused, nth: 2}}
	return slices.DeleteFunc(all, func(x *fault) bool { return x.What == paused && !child.CanPause })
}

// strikeAll executes the faults, and then restarts all processes, one by one, while the next fire
// time of a job comes.
func (f *fleet) strikeAll(ctx context.Context, jobs []job, faults []*fault) (restarts int, err error) {
	for _, x := range faults {
		if err := f.strike(ctx, jobs, x); err != nil {
			return 0, fmt.Errorf("%s, %s: %w", x.Job, x.What, err)
		}
	}
	fire := named(jobs, billing).ticks()[3].Add(-f.skew) // by the fastest clock
	if program.Sleep(ctx, time.Until(fire)-f.period/50) != nil {
		return 0, context.Cause(ctx)
	}
	for row := range f.workers {
		f.mu.Lock()
		m := f.rows[row]
		f.mu.Unlock()
		f.leave(m)
		if err := f.start(ctx, row); err != nil {
			return row, err
		}
	}
	return f.workers, nil
}

func named(jobs []job, name string) job {
	for _, j := range jobs {
		if j.Name == name {
			return j
		}
	}
	return job{}
}

// strike waits until the run is in its middle, and executes the fault.
func (f *fleet) strike(ctx context.Context, jobs []job, x *fault) error {
	j := named(jobs, x.Job)
	x.tick = j.ticks()[x.nth]
	waiting, cancel := context.WithDeadline(ctx, x.tick.Add(f.skew+j.Takes+f.config.TTL))
	defer cancel()
	var begun int64
	e, err := f.log.await(waiting, func(e event) bool {
		if e.Way != bySchedlock || e.Job != x.Job || !e.Tick.Equal(x.tick) || e.Attempt != 1 {
			return false
		}
		if e.Kind == evBegin {
			begun = e.At
		}
		done := time.Duration(e.At - begun)
		fresh := time.Duration(hostclock.Now()-e.At) < 5*step
		return e.Kind == evStep && fresh && (done > j.Takes/3 && f.quiet(e, jobs) || done > j.Takes*2/3)
	})
	if err != nil {
		return context.Cause(ctx) // nil if there was no such run: the judge reports that
	}
	f.mu.Lock()
	m := f.all[e.worker]
	m.fate = x.What
	f.mu.Unlock()
	x.worker = m.worker
	if x.What == killed {
		if err := m.proc.Kill(); err != nil {
			return err
		}
		<-m.gone
		x.at = hostclock.Now()
		return f.start(ctx, m.row)
	}
	if err := m.proc.Stop(); err != nil {
		return err
	}
	x.at = hostclock.Now()
	_ = program.Sleep(ctx, f.pause())
	m.pauses = append(m.pauses, [2]int64{x.at, hostclock.Now()})
	return m.proc.Continue()
}

// quiet reports whether the process is between two fire times, by its own clock, so that the fault
// interrupts a run and not the start of another one.
func (f *fleet) quiet(e event, jobs []job) bool {
	f.mu.Lock()
	shift := f.shift(f.all[e.worker].row)
	f.mu.Unlock()
	beat := named(jobs, heartbeat)
	at := time.Now().Add(-time.Duration(hostclock.Now() - e.At)).Add(shift)
	since := at.Sub(beat.First) % beat.Every
	return since > beat.Every*35/100 && since < beat.Every*7/10
}
