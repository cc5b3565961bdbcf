package keyspace

import (
	"strconv"
	"strings"
	"time"
)

// Job is the part of etcd that belongs to one job of schedlock.
type Job struct {
	Range string
}

// Jobs is the range of all jobs.
func (s Space) Jobs() string { return s.root + "job/" }

// Job returns the keys of a job. The name must have passed CheckJob.
func (s Space) Job(name string) Job { return Job{Range: s.Jobs() + escape(name) + "/"} }

// Lock exists while the job runs, on its session's lease.
func (j Job) Lock() string { return j.Range + "lock" }

// Cooldown exists from a start until AtLeast has passed, on a lease of its own.
func (j Job) Cooldown() string { return j.Range + "cooldown" }

// Pause exists while the job is paused.
func (j Job) Pause() string { return j.Range + "pause" }

// RequestedRun asks the processes that use the job to run it now, on a lease of its own.
func (j Job) RequestedRun() string { return j.Range + "run-request" }

// Operated is put by each Pause and Resume, so that a late copy of one cannot undo the
// next.
func (j Job) Operated() string { return j.Range + "operation" }

// Settings contains the settings of the live users of the job.
func (j Job) Settings() string { return j.Range + "settings" }

// Plan has the schedule of the job and its next fire times, without a lease.
func (j Job) Plan() string { return j.Range + "plan" }

// Lost has the latest run whose loss was reported.
func (j Job) Lost() string { return j.Range + "reported-loss" }

// Runs is the range of the run records.
func (j Job) Runs() string { return j.Range + "run/" }

// Run is the claim and the record of a tick.
func (j Job) Run(tick time.Time) string { return j.Runs() + stamp(tick) }

// Floors is the range of the floor.
func (j Job) Floors() string { return j.Range + "floor/" }

// Floor says that records up to this tick were trimmed. The tick is in the name, so that a Txn can
// compare it.
func (j Job) Floor(tick time.Time) string { return j.Floors() + stamp(tick) }

// ParseRun returns the tick of a run record's key.
func (j Job) ParseRun(key string) (time.Time, bool) { return parseTick(key, j.Runs()) }

// ParseFloor returns the tick of a floor's key.
func (j Job) ParseFloor(key string) (time.Time, bool) { return parseTick(key, j.Floors()) }

// Owns reports whether a key is one of the job's. Another key in its range is foreign.
func (j Job) Owns(key string) bool {
	switch key {
	case j.Lock(), j.Cooldown(), j.Pause(), j.RequestedRun(), j.Operated(), j.Settings(), j.Plan(), j.Lost():
		return true
	}
	_, run := j.ParseRun(key)
	_, floor := j.ParseFloor(key)
	return run || floor
}

func parseTick(key, before string) (time.Time, bool) {
	rest, ok := strings.CutPrefix(key, before)
	t, err := time.Parse(layout, rest)
	return t, ok && err == nil && stamp(t) == rest
}

// ParseJob splits a key below Jobs into the job's name and the rest.
func (s Space) ParseJob(key string) (name, rest string, ok bool) {
	return split(key, s.Jobs())
}

// Clocks is the range in which the processes that run jobs publish their time.
func (s Space) Clocks() string { return s.root + "clock/" }

// Clock is the key of one of them.
func (s Space) Clock(lease int64) string { return s.Clocks() + hex16(lease) }

// Users is the range in which the processes that have jobs publish the names of these. It is not below Jobs, to
// which each of them listens.
func (s Space) Users() string { return s.root + "jobs-of/" }

// User is one of the keys of a process: n counts them.
func (s Space) User(lease int64, n int) string {
	return s.Users() + hex16(lease) + "/" + strconv.Itoa(n)
}

// layout of a tick in a key: an instant in UTC, in milliseconds. Its text sorts as the
// instants do, from year 0 to 9999.
const layout = "2006-01-02T15:04:05.000Z"

func stamp(t time.Time) string { return t.UTC().Format(layout) }
