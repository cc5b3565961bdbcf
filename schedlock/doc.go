// Package schedlock runs the scheduled jobs of a fleet of processes: each fire time of a job is
// started by one process and skipped by all others. A Job knows its fire times; give Locker.Do the option Tick or Every. Without
// them each call is a tick of its own, and a cron that calls on each host runs the job on each of them: a warning is logged.
//
// # Guaranteed
//
// A tick is started at most once; with Retries(n), at most n further times, each time after the
// previous run was lost or, with RetryFailed, has failed. One Txn of etcd decides that; no clock takes part in it. Clocks decide which
// ticks have come, and which are too late.
//
// A tick is not started after a later tick of the job was claimed. The same Txn decides that. A
// later tick does not count if it is further in the future than Options.MaxSkew, by the clock of
// the process that claims now: the process that has claimed it has a wrong clock.
//
// The runs of one job do not overlap if their functions return when their contexts end. The context
// of a run ends, with a cause, before another run can start, under the assumptions that package
// concurrency states for permits.
//
// The Token of a run is greater than the tokens of all earlier runs of the job. A Txn that carries
// the run's Guard takes effect only while the run is active in etcd.
//
// If a process crashes, the loss of its runs is detected after the session's TTL and half a second,
// whatever AtMost is. Retries decides whether their ticks are started again. By default they are
// not, so that no tick is started twice.
//
// # Unconfirmed ends
//
// If etcd cannot be reached when a function returns, the run is not lost: no other run was started
// before. The call returns the function's own result, after the session's ReleaseTimeout (2 s by
// default) at the latest, and Result.Unconfirmed reports that etcd has not confirmed the record of
// the end. (After a failure it waits longer if RetryFailed allows another attempt.) Recording
// continues in the background until the session's lease ends, and until then the job counts as running. If the lease ends first, all other processes see the run as lost: with
// Retries one of them starts the tick again, although its work is done. A job that must not be done
// twice therefore has no Retries, or its work uses an idempotency key.
//
// # Not guaranteed
//
// Not every tick is started. A tick is skipped if a run of the job is active, if the job is paused
// or cools down, or if no process is alive to start it. A run's effects outside etcd may happen more
// than once: a process can be paused between the check of its context and the effect. Ticks
// are not started exactly on time: they start by the clock of the process that claims first. If
// clocks differ by more than a job's interval, a process with a fast clock can claim a later tick
// first; the earlier tick is then skipped.
//
// # Failures under a cron library
//
// A cron library drops the results of its calls. Set Options.Done, which is called with each result
// and error, Options.Lost, which is called for the runs that other processes have lost, or
// SessionOptions.Logger, which gets failed and lost runs, ticks that could not be
// claimed, and settings that are refused (once, not at each tick). Without both, only History shows
// a job that fails each night.
//
// Package gocronlock has the lockers and the elector for gocron. A Job fits robfig/cron, and Wrap any
// library whose jobs have a Run. For other schedulers see Adapter.
//
// # Terms
//
// A tick is a fire time of a job: an instant in UTC, the same in all processes. The tick record is
// what etcd stores about a tick. A process claims a tick by creating its record; the record is
// afterwards the history of the tick's latest run.
//
// A run is one execution of a job's function. It is active from its start until its end is recorded,
// it is unlocked, or the lease of its session ends; State and Status show an active run as running.
// An attempt is a start of a tick: the first one, or a further one after the previous run was lost or, with
// RetryFailed, has failed.
// The owner of a run is the session whose process executes it, by its SessionOptions.Owner.
//
// A cooldown is the time after a start during which AtLeast keeps the job from starting again. A
// call that finds a run of its own tick active, and may start another attempt, waits for the end of
// that run: it is on standby.
package schedlock
