// Package schedlock lets exactly one process of a fleet run each tick of a scheduled
// job: one start per fire time, skipped everywhere else.
//
// # Guaranteed
//
// At most one start for each attempt at a tick: that is decided in one Txn of etcd, and rests
// on no clock. No start of a tick when a later one was claimed before, in the same Txn, unless
// the later one lies further ahead than MaxSkew by the clock of the process that claims now:
// such a claim is one of a process whose clock is wrong, and does not count. The runs of one
// job do not overlap if they return when their contexts end: a run's context ends, with a cause, before another run can start, under the assumptions that package
// concurrency names for permits. A run's Token rises from run to run, and a Txn that
// carries its Guard takes effect only while the run goes on.
//
// A crashed run is noticed after the session's TTL and half a second, however long
// AtMost is. What then becomes of its tick is said by Retries: by default nothing, so that
// nothing is started twice.
//
// # An end that is not confirmed
//
// If etcd goes away just when a function has returned, its run is not lost: no other run was
// started before. The call returns the function's own result, after the session's ReleaseTimeout
// (2 s by default) at the latest, and Result.Unconfirmed says that the record of the end is not
// confirmed. Recording continues in the background until the session's lease ends, and the job
// counts as running as long. If the lease ends first, all other processes see the run as lost:
// with Retries one of them starts the tick again, although its work was done. So a job that
// must not be done twice does without Retries, or its work takes an idempotency key.
//
// # Not guaranteed
//
// That every tick starts: one whose time passes while the job still runs or is paused, or
// while no process is there to run it, is skipped. That what a run does outside etcd happens once: a
// process can be stopped between looking at its context and acting. That ticks start
// exactly on time: they start by the clock of the process that claims first. If clocks differ
// by more than a job's interval, a process with a fast clock can claim a later tick first;
// the earlier one is then skipped.
//
// # Failures under a cron library
//
// A cron library drops what a call returns. So set Options.Done, which gets each result and
// error, and SessionOptions.Logger, which gets failed and lost runs, ticks that could not be
// claimed, and settings that are refused (once, not at each tick). Without both, a job that
// fails each night shows in History alone.
//
// # Terms
//
// A tick is a fire time, as an instant in UTC: the same in all processes. A claim is the
// record that a process starts a tick; it later is the history of that run. An attempt is
// one start of a tick.
package schedlock
