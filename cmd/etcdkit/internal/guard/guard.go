package guard

import (
	"fmt"
	"syscall"
	"time"
)

// Argument is the first argument of a process that is a guard. Main is its body.
const Argument = "__guard"

// FrontArgument is the first argument of a process that is the front process of one command of another process's.
// Front is its body.
const FrontArgument = "__front"

// Command is what a guard runs.
type Command struct {
	Args []string // the program and its arguments
	Env  []string
	Dir  string // the working directory; empty for that of this process

	// Grace is the time between SIGTERM and SIGKILL.
	Grace time.Duration
	// EndLeft has what the command leaves behind ended when the command has exited. Otherwise it may run
	// until the deadline.
	EndLeft bool
}

// Status is how a command has ended.
type Status struct {
	Code   int            // the exit code, if Signal is 0
	Signal syscall.Signal // that has ended it, or 0
	CutOff bool           // it had not ended when its guard began to end it, or when SIGTERM came to the guard or the front process
	Ended  bool           // it had not ended when its guard began to end it: at the deadline, or as Stop has asked for
}

// ExitCode is what a shell reports: the exit code, or 128 and the number of the signal.
func (s Status) ExitCode() int {
	if s.Signal != 0 {
		return 128 + int(s.Signal)
	}
	return s.Code
}

// Process is a process that the command has started.
type Process struct {
	PID  int
	Name string
}

// String returns the name and the number of the process.
func (p Process) String() string { return fmt.Sprintf("%s (%d)", p.Name, p.PID) }

// Event is what happens to a command. One field is set.
type Event struct {
	Ready   bool      // the guard waits for the command; Start takes this event
	Started int       // its process ID
	Failed  *Failed   // it could not be started; Empty follows
	Exited  *Status   // it has exited
	Stopped bool      // a terminal, or a signal as of one, has stopped it
	Left    []Process // still run a second after it has exited
	Refused string    // why a process cannot be ended
	Died    bool      // the guard was killed or stopped, everything has been killed, and how the command has ended is not known
	Cleared bool      // the same after Exited or Failed: what the command had left running has been killed
	Empty   bool      // no process is left. This is the last event.
}

// KilledError is that a signal has ended the guard before it started the command.
type KilledError struct{ Signal syscall.Signal }

// Error names the signal.
func (e *KilledError) Error() string {
	return fmt.Sprintf("the guard process was ended by a signal (%v), so the command was not started", e.Signal)
}

// Failed says why a command could not be started.
type Failed struct {
	Code int // 126 if it was found, 127 if not
	Text string
}

// order is a message to the guard.
type order struct {
	Start  *start         `json:",omitempty"`
	Until  time.Duration  `json:",omitempty"` // since boot: the new deadline
	Stop   bool           `json:",omitempty"`
	Signal syscall.Signal `json:",omitempty"`
}

// start is a Command in JSON, which has no strings that are not UTF-8. Arguments and file names may be any bytes.
type start struct {
	Args, Env [][]byte
	Dir       []byte
	Grace     time.Duration
	EndLeft   bool
}

func (c Command) start() *start {
	return &start{bytesOf(c.Args), bytesOf(c.Env), []byte(c.Dir), c.Grace, c.EndLeft}
}

func (s *start) command() Command {
	return Command{stringsOf(s.Args), stringsOf(s.Env), string(s.Dir), s.Grace, s.EndLeft}
}

func bytesOf(all []string) (out [][]byte) {
	for _, s := range all {
		out = append(out, []byte(s))
	}
	return out
}

func stringsOf(all [][]byte) (out []string) {
	for _, b := range all {
		out = append(out, string(b))
	}
	return out
}

// trust decides what a guard does, by the time since boot.
type trust struct {
	grace   time.Duration
	until   time.Duration // the deadline
	stop    time.Duration // when the end was requested, or 0
	gone    bool          // the front process has died
	endLeft bool          // the command has exited, and what it has left is to be ended
}

// step is what is to be done to the processes.
type step int

const (
	leave step = iota
	terminate
	kill
)

// at returns what is to be done at a time, and when to ask again at the latest.
func (t trust) at(now time.Duration) (step, time.Duration) {
	ends := t.until
	if t.stop != 0 {
		ends = min(ends, t.stop)
	}
	switch {
	case t.gone || now >= ends+t.grace:
		return kill, now
	case now >= ends:
		return terminate, ends + t.grace
	default:
		return leave, ends
	}
}
