package observe

import "time"

// Result is how a call has ended, in one word.
type Result string

// The results.
const (
	Granted     Result = "granted"     // acquire, campaign, claim, begin: the caller has what it asked for
	Replayed    Result = "replayed"    // begin: the outcome of an earlier attempt
	Refused     Result = "refused"     // not granted, by a rule; Reason says which
	GaveUp      Result = "gave_up"     // the caller's ctx or its Wait has ended
	Released    Result = "released"    // hold, lead, release, execute: ended by its holder
	Unconfirmed Result = "unconfirmed" // hold, lead, release, record: ended by its holder, and etcd has not confirmed it
	Done        Result = "done"        // run, execute, record: the work is done
	Failed      Result = "failed"      // run, execute: the function has failed
	Abandoned   Result = "abandoned"   // execute: left as lost by its caller
	Lost        Result = "lost"        // ended before its holder has ended it; Reason says why
	Error       Result = "error"       // any other error; Reason says of what kind
)

// Reason is why a call has ended as it has, in one word.
type Reason string

// The reasons of Refused.
const (
	Full       Reason = "full"        // no permit is free; too many wait
	Held       Reason = "held"        // the ID is in use
	Mismatch   Reason = "mismatch"    // another limit is stored; the key was used with another payload; other settings of the job
	TooMany    Reason = "too_many"    // the session, the limiter's keys or the scope of a request
	Claimed    Reason = "claimed"     // the tick is claimed, or was executed
	Busy       Reason = "busy"        // another run of the job is active
	Paused     Reason = "paused"      // the job is paused; the limit is 0
	Cooldown   Reason = "cooldown"    // the job cools down (schedlock.AtLeast)
	Late       Reason = "late"        // it is too late for the tick
	InProgress Reason = "in_progress" // another attempt at the request is in progress
	Unknown    Reason = "unknown"     // the outcome of a lost attempt is unknown
	Conflict   Reason = "conflict"    // a condition given to Attach is not met
	NearQuota  Reason = "near_quota"  // etcd is near its quota
	Settled    Reason = "settled"     // the attempt was settled before
	Exceeded   Reason = "exceeded"    // of RateCalls: there was no token
)

// Waited is a reason of Granted, of RateCalls: the wait was longer than 10 s, and than two tokens take at the rate in
// force.
const Waited Reason = "waited"

// The reasons of GaveUp.
const (
	Canceled    Reason = "canceled"    // the caller's ctx
	Deadline    Reason = "deadline"    // the deadline of the caller's ctx
	Wait        Reason = "wait"        // the option Wait
	Unavailable Reason = "unavailable" // one of these, while etcd did not answer
)

// The reasons of Lost.
const (
	SessionEnded Reason = "session"  // the session's lease was lost
	KeyGone      Reason = "key_gone" // the key was deleted, or the claim was removed
	TooLong      Reason = "too_long" // MaxHold, AtMost or MaxExecution has passed
	Evicted      Reason = "evicted"  // by Evict, TakeOver or Unlock
	Fenced       Reason = "fenced"   // another attempt has taken over
)

// The reasons of Error, of Lost and, for ByID, of Released.
const (
	Invalid Reason = "invalid" // the arguments or options
	Closed  Reason = "closed"  // the session or its client, or a Job was removed
	Etcd    Reason = "etcd"    // an error of etcd's, or of the connection
	ByID    Reason = "by_id"   // ReleaseID, in any process
	Panic   Reason = "panic"   // the function has panicked, or has exited its goroutine

	// NotConfirmed, of a run and an execution: the function has returned, and etcd has not confirmed the
	// record of that.
	NotConfirmed Reason = "not_confirmed"
)

// Outcome is the end of a call.
type Outcome struct {
	Result Result
	Reason Reason // empty if Result says all
	Err    error  // that the call returns or, for a hold and an execution, the cause of its end; nil if there is none
	// Took is the time from the start to the end. For a hold and an execution it ends when the holder
	// ends the work, not when etcd confirms that.
	Took    time.Duration
	Token   int64     // that was granted; 0 if none was
	Tick    time.Time // of a claim
	Attempt int       // that was granted; of a replay the attempt that has the outcome
}
