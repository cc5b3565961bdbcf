// Package gocronlock has the distributed locks and the elector that gocron (github.com/go-co-op/gocron/v2)
// takes, on a schedlock.Locker: each fire time of a job is started by one process of the fleet.
//
// New is a locker for jobs at intervals, NewCron one for a job at times of day. Both start a tick at most
// once, and the runs of one job do not overlap, under the conditions that package schedlock states. Another
// lock for gocron locks the name of the job until its task ends, so that each process whose timer fires
// after that runs the task again; these create the tick's record. NewElector has the jobs run in the
// process that leads, which is weaker.
//
// A tick may be skipped: gocron calls a lock when its timer fires, and a lock that cannot be acquired is a
// task that is not called.
//
// gocron does not pass on what happens to a run. A task is not notified that its run was lost: use
// Locker.Running to get the run. gocron does not report to a lock that a task failed or panicked, nor that it
// was not called because BeforeJobRunsSkipIfBeforeFuncErrors returned an error: the history shows such a
// run as done unless a listener calls Locker.Fail.
//
// The package does not import gocron. The type parameter L of its functions is gocron.Lock.
package gocronlock
