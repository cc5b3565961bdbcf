package main

import "time"

// job is one entry of the crontab that all workers have.
type job struct {
	Name    string
	Every   time.Duration
	First   time.Time // fire time
	Until   time.Time // no fire times from here on
	Takes   time.Duration
	Retries int
}

// Next is the schedule: robfig/cron's shape.
func (j job) Next(t time.Time) time.Time {
	next := j.First
	if !t.Before(j.First) {
		next = j.First.Add((t.Sub(j.First)/j.Every + 1) * j.Every)
	}
	if !next.Before(j.Until) {
		return time.Time{}
	}
	return next
}

// ticks lists all fire times.
func (j job) ticks() (all []time.Time) {
	for t := j.Next(j.First.Add(-1)); !t.IsZero(); t = j.Next(t) {
		all = append(all, t)
	}
	return all
}

// overlong reports whether the job takes longer than its interval, so that ticks must be skipped.
func (j job) overlong() bool { return j.Takes > j.Every }

// The jobs by name. The faults interrupt billing and backup.
const (
	heartbeat = "heartbeat" // takes no time
	report    = "report"    // takes longer than its interval
	billing   = "billing"   // must never start twice: no Retries
	backup    = "backup"    // must be done: Retries 1
)

// crontab returns the jobs, from a start that is in the future by the clocks of all workers.
func crontab(c config, start time.Time) []job {
	p, until := c.period, start.Add(c.period*15/4)
	return []job{
		{Name: heartbeat, Every: p / 8, First: start, Until: until},
		{Name: report, Every: p * 3 / 8, First: start, Until: until, Takes: p * 5 / 8},
		{Name: billing, Every: p, First: start.Add(p / 4), Until: until, Takes: p / 4},
		{Name: backup, Every: p, First: start.Add(p * 3 / 4), Until: until, Takes: p / 4, Retries: 1},
	}
}

// step is how long one step of work takes.
const step = 25 * time.Millisecond
