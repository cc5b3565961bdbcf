package guarded

import (
	"context"
	"fmt"
	"time"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/guard"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/observe"
)

// Execution is a command that runs as long as a permit, or a run of a job, permits it.
type Execution struct {
	Call    *verb.Call
	Verb    string // begins its messages
	Kind    concurrency.QueueKind
	Name    string // of the queue or the job
	Command []string
	TTL     time.Duration // or 0
	Grace   time.Duration // between SIGTERM and SIGKILL
	MaxHold time.Duration // or 0
	EndLeft bool          // what the command has left running is ended
	Title   string        // begins messages, after the verb

	End   *CutOff // why etcdkit has ended the command, or nil
	Cut   bool    // the command was cut off, see guard.Status
	Ended bool    // its guard has ended it, see guard.Status
}

// CutOff is why a command was ended, as the exit file of run has it.
type CutOff struct {
	By, Reason string
}

// electionTime is the part of the margin that covers an election of etcd's leader, and killTime the part
// in which the kernel ends processes.
const (
	electionTime = 1200 * time.Millisecond
	killTime     = 500 * time.Millisecond
)

// longestTTL is the greatest TTL of a session.
const longestTTL = 24 * time.Hour

// Times returns the TTL and margin of the session, within which the grace fits. It returns an error of usage for
// times that are out of range.
func (x Execution) Times() (ttl, margin time.Duration, err error) {
	switch {
	case x.Grace < 0:
		return 0, 0, exit.Usagef("--grace %v is negative", x.Grace)
	case x.MaxHold < 0:
		return 0, 0, exit.Usagef("--max-hold %v is negative", x.MaxHold)
	}
	if most := longestTTL/3 - electionTime - killTime; x.Grace > most {
		return 0, 0, exit.Usagef("--grace %v is above %v: the TTL of the permit is three times as long, and at most %v", x.Grace, most,
			longestTTL)
	}
	margin = electionTime + x.Grace + killTime
	least := (3*margin + time.Second - 1).Truncate(time.Second)
	ttl = x.TTL
	if ttl == 0 {
		ttl = max(15*time.Second, least)
	}
	if ttl < least || ttl > longestTTL || ttl%time.Second != 0 {
		return 0, 0, exit.Usagef("--ttl %v is not a number of whole seconds, at least %v with --grace %v, and at most %v: a third of "+
			"it ends the command in time",
			x.TTL, least, x.Grace, longestTTL)
	}
	return ttl, margin, nil
}

// Begin begins the verb, and returns the options of its session. It returns an error as Times does, and on a system
// without a guard.
func (x *Execution) Begin() (*concurrency.SessionOptions, error) {
	ttl, margin, err := x.Times()
	if err != nil {
		return nil, err
	}
	if err := guard.Supported(); err != nil {
		return nil, exit.With(exit.NotRunnable, err)
	}
	x.Call.SurviveReader()
	return &concurrency.SessionOptions{Owner: verb.Owner(x.Verb), TTL: ttl, Margin: margin}, nil
}

// Renewals returns a channel that has a value after each renewal of a session's lease, and the hooks for that.
func Renewals() (<-chan struct{}, observe.Hooks) {
	renewed := make(chan struct{}, 1)
	return renewed, observe.Hooks{Event: func(_ context.Context, e observe.Event) {
		if _, ok := e.(observe.LeaseRenewed); ok {
			select {
			case renewed <- struct{}{}:
			default:
			}
		}
	}}
}

// Say writes a message to standard error.
func (x *Execution) Say(format string, args ...any) {
	fmt.Fprintf(x.Call.Std.Err, "etcdkit %s: %s\n", x.Verb, output.Printable(x.Title+fmt.Sprintf(format, args...)))
}

// Over returns an error with an exit code for a verb whose permit, or run, has ended with err before it was released.
func (x *Execution) Over(code int, err error) error {
	if x.End == nil {
		return exit.Errorf(code, "%w: the command had ended by itself", err)
	}
	return exit.Errorf(code, "%w: the command was ended", err)
}
