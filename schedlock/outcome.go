package schedlock

import (
	"strconv"
	"time"
)

// Outcome is what a call did about a tick.
type Outcome int

// The outcomes.
const (
	// NotClaimed: the call failed before it claimed the tick. Its error is the reason.
	NotClaimed Outcome = iota
	// Ran: this call ran the function, and it returned nil.
	Ran
	// Failed: this call ran the function, and it returned an error, panicked, called
	// runtime.Goexit or exceeded AtMost.
	Failed
	// Lost: this call ran the function, but the run was lost or was unlocked before the function
	// returned. This process's clock or an answer of etcd's shows that. The work that the
	// function did after the loss may overlap with another run.
	Lost
	// Claimed: another call has claimed this tick. Its run is active, has ended or was lost.
	Claimed
	// StillRunning: a run of another tick is active, or the job cools down (AtLeast).
	StillRunning
	// Paused: the job is paused, see Result.Paused.
	Paused
	// Late: LateBy has passed since the tick, a later tick has come or was claimed, or no tick of the
	// schedule has come yet.
	Late
)

var outcomes = [...]string{NotClaimed: "not claimed", Ran: "ran", Failed: "failed", Lost: "lost", Claimed: "claimed elsewhere", StillRunning: "still running", Paused: "paused", Late: "late"}

// String returns the outcome in words, such as "still running".
func (o Outcome) String() string {
	if o < NotClaimed || int(o) >= len(outcomes) {
		return "Outcome(" + strconv.Itoa(int(o)) + ")"
	}
	return outcomes[o]
}

// Started reports whether this call started the function.
func (o Outcome) Started() bool { return o == Ran || o == Failed || o == Lost }

// Result reports what one call did about a tick.
type Result struct {
	Job     string
	Tick    time.Time // in UTC
	Outcome Outcome
	// Attempt and Token are those of this call's run, or 0 if it started none.
	Attempt int
	Token   int64
	// Owner names the process that has claimed the tick or runs the job, if it is known and
	// this call started no run: SessionOptions.Owner of its session.
	Owner  string
	Paused *Pause        // if Outcome is Paused, or nil
	Took   time.Duration // of the function
	// Unconfirmed is nil, or an *UnconfirmedError (ErrUnconfirmed): the function has ended as
	// Outcome says, and etcd has not confirmed the record of the end.
	Unconfirmed error
}
