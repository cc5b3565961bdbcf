package doctor

import (
	"time"

	"github.com/etcdkit/etcdkit/internal/record"
)

// Runs is what the records of a job show, as far as its judgment needs it.
type Runs struct {
	Stored, Lost, Failed int       // records, and those of them that were lost or have failed
	Repeated             int       // attempts that were lost, and after which the run was tried again
	LastFailed           bool      // its latest run that is over has failed
	Loss, Failure        time.Time // the latest start of a lost attempt, and end of a failed or start of a lost run; zero if not known
	Success              time.Time // the latest end of a run without an error, or zero
}

// Add adds a record that can be read. A time that has not come yet, by a wrong clock, does not count.
func (r *Runs) Add(state string, lost bool, start, end, now time.Time) {
	r.Stored++
	switch {
	case lost:
		r.Lost++
		r.Loss, r.Failure = later(r.Loss, start, now), later(r.Failure, start, now)
	case state == record.RunFailed:
		r.Failed++
		r.Failure = later(r.Failure, end, now)
	case state == record.RunDone:
		r.Success = later(r.Success, end, now)
	}
}

// Repeat adds an attempt that was lost, and after which the run was tried again.
func (r *Runs) Repeat(start, now time.Time) {
	r.Repeated++
	r.Loss = later(r.Loss, start, now)
}

// later returns the later one of two times, of which the second counts if it has come.
func later(a, b, now time.Time) time.Time {
	if b.After(a) && !b.After(now) {
		return b
	}
	return a
}

// openFor is for how long a lost or failed run wants an operator although a run has succeeded since.
const openFor = 24 * time.Hour

// open reports whether what happened at a time wants an operator: no run has succeeded since, or it is less than a day ago.
func (r Runs) open(at, now time.Time) bool {
	return at.IsZero() || !r.Success.After(at) || now.Sub(at) < openFor
}

// LossOpen reports whether an attempt was lost, and an operator has to look at that.
func (r Runs) LossOpen(now time.Time) bool { return r.Lost+r.Repeated > 0 && r.open(r.Loss, now) }

// FailureOpen is as LossOpen, of failed runs.
func (r Runs) FailureOpen(now time.Time) bool {
	return r.LastFailed || r.Failed > 0 && r.open(r.Failure, now)
}

// JobRuns judges the records of a job. The metric of lost runs counts attempts that were tried again, too.
func JobRuns(name string, r Runs, now time.Time) (found []Finding) {
	level := func(open bool) Level {
		if open {
			return Warn
		}
		return Note // a run has succeeded since, and it is a day old
	}
	again, last := "", ""
	if r.Repeated > 0 {
		again = ", and " + count(r.Repeated, "attempt that was tried again", "attempts that were tried again")
	}
	if r.Lost+r.Repeated > 0 {
		found = One(level(r.LossOpen(now)),
			"Their processes died or were cut off. Without Retries such a tick is not repeated; 'etcdkit jobs history -o json' has the times "+
				"and owners.", "job %s: %d of %d stored runs were lost%s", name, r.Lost, r.Stored, again)
	}
	if r.LastFailed {
		last = ", the last one among them"
	}
	if r.Failed > 0 {
		found = append(found, One(level(r.FailureOpen(now)), "'etcdkit jobs history' has their errors.", "job %s: %d of %d stored runs failed%s", name, r.Failed, r.Stored, last)...)
	}
	return found
}

// outlasting is how long after the next tick a run that is active wants an operator, as EtcdkitRunOutlastsPeriod has it.
const outlasting = 15*time.Minute + 2*time.Minute

// Outlasts reports whether the fire time that follows an active run has come that long ago. next may be zero.
func Outlasts(next, now time.Time) bool { return !next.IsZero() && now.Sub(next) > outlasting }

// JobOutlasts is the finding of a job with an active run past its next fire time.
func JobOutlasts(name string, next time.Time) []Finding {
	return One(Warn, "It is slow or hangs: 'etcdkit jobs' names its process, 'etcdkit jobs unlock' ends it. AtMost bounds a run.",
		"job %s: a run is active past the next tick of %s", name, stamp(next))
}

// stamp returns a time as findings have it.
func stamp(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.999Z07:00") }
