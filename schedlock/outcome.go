package schedlock

import (
	"strconv"
	"time"
)

// Outcome says what a call did about a tick.
type Outcome int

// The outcomes.
const (
	// NotClaimed: the call failed before it claimed the tick, and its error says why.
	NotClaimed Outcome = iota
	// Ran: the function ran here and returned nil.
	Ran
	// Failed: it ran here and returned an error, panicked, called runtime.Goexit or
	// ran longer than AtMost.
	Failed
	// Lost: it ran here, but the run was taken for dead or was unlocked before its
	// function returned, as this process's clock or etcd's answer says. Another attempt may
	// have overlapped with what it did since.
	Lost
	// Claimed: another call has run this tick, or runs it.
	Claimed
	// StillRunning: the run of another tick goes on, or its AtLeast has not passed.
	StillRunning
	// Paused: somebody has paused the job.
	Paused
	// Late: the tick is older than LateBy, or a later one was claimed before.
	Late
)

var outcomes = [...]string{NotClaimed: "not claimed", Ran: "ran", Failed: "failed", Lost: "lost", Claimed: "claimed elsewhere", StillRunning: "still running", Paused: "paused", Late: "late"}

// String names the outcome.
func (o Outcome) String() string {
	if o < NotClaimed || int(o) >= len(outcomes) {
		return "Outcome(" + strconv.Itoa(int(o)) + ")"
	}
	return outcomes[o]
}

// Started tells whether the function was started by this call.
func (o Outcome) Started() bool { return o == Ran || o == Failed || o == Lost }

// Result is what became of a tick in one call.
type Result struct {
	Job     string
	Tick    time.Time // in UTC
	Outcome Outcome
	// Attempt and Token are those of this call's run, or 0 if it started none.
	Attempt int
	Token   int64
	// Holder names the process that has claimed the tick or runs the job, if it is known and
	// this call started no run: SessionOptions.Holder of its session.
	Holder string
	Paused *Pause        // if Outcome is Paused, or nil
	Took   time.Duration // of the function
	// Unconfirmed is nil, or an *UnconfirmedError (ErrUnconfirmed): the function has ended,
	// as Outcome says, but etcd has not confirmed the record of that.
	Unconfirmed error
}
