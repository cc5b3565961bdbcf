package fleet

import (
	"time"

	"github.com/etcdkit/etcdkit/internal/record"
)

// latestOf returns the later one of two times, of which the second counts if it has come.
func latestOf(before, at int64, now time.Time) int64 {
	if record.HasCome(at, now) {
		return max(before, at)
	}
	return before
}

// counts reports whether the record of a tick counts at a time.
func counts(tick int64, r Run, now time.Time) bool {
	return record.RunCounts(tick, r.Start, now)
}

// ends returns the latest end of a run, and of a run without an error, of those that have come at a time; or 0.
func (j *Job) ends(now time.Time) (ended, success int64) {
	if record.HasCome(j.removed, now) {
		success = j.removed
	}
	for _, r := range j.Runs {
		if !record.HasCome(r.end, now) {
			continue
		}
		ended = max(ended, r.end)
		if r.State == record.RunDone {
			success = max(success, r.end)
		}
	}
	return ended, success
}

// remove takes a record away. The end of a run without an error is kept.
func (j *Job) remove(tick int64) {
	if r := j.Runs[tick]; r.State == record.RunDone {
		j.removed = max(j.removed, r.end)
	}
	delete(j.Runs, tick)
}

// inherit takes over what an earlier state of the job knows and a list does not show.
func (j *Job) inherit(old *Job) {
	j.removed = max(j.removed, old.removed)
	for tick, r := range old.Runs {
		if _, kept := j.Runs[tick]; !kept && r.State == record.RunDone {
			j.removed = max(j.removed, r.end)
		}
	}
	if j.operatedMod == old.operatedMod {
		j.operated = old.operated
	}
}
