package guarded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/guard"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/schedlock"
)

// Holding is the time for which a command may run: a permit, or a run of a job.
type Holding interface {
	Deadline() time.Time
	Context() context.Context
	StopRequested() context.Context
	// Err returns an error that wraps concurrency.ErrLost once the permit has ended, and nil before.
	Err() error
}

// Guardian is a command under a guard.
type Guardian interface {
	Events() <-chan guard.Event
	Trust(until time.Time)
	Stop()
}

// Run runs the command under a guard of this process, until no process of it is left. It returns an error for the
// command's exit code, nil for 0. A signal that has come before the start, or comes until then, is returned in place of it;
// later signals are the command's.
func (x *Execution) Run(ctx context.Context, p Holding, env []string, renewed <-chan struct{}) error {
	g, err := x.start(ctx, p, env)
	if err != nil {
		return err
	}
	return x.Supervise(p, g, renewed)
}

// start starts the command under its guard, unless a signal has come before: from then on the signals are the
// command's.
func (x *Execution) start(ctx context.Context, p Holding, env []string) (*guard.Guarded, error) {
	command := guard.Command{Args: x.Command, Env: env, Grace: x.Grace, EndLeft: x.EndLeft}
	g, err := guard.Start(ctx, command, p.Deadline(), func() error {
		x.Call.Uncatch()
		return ctx.Err()
	})
	var killed *guard.KilledError
	switch {
	case err == nil:
		return g, nil
	case errors.As(err, &killed) && slices.Contains(exit.Signals, os.Signal(killed.Signal)): // one to the process group
		return nil, exit.Interrupted{Signal: killed.Signal}
	case ctx.Err() != nil && p.Err() != nil: // its time was over, or it was lost, before the guard was ready
		return nil, exit.Errorf(exit.NotRunnable, "the command was not started: %w", p.Err())
	case ctx.Err() != nil:
		return nil, ctx.Err()
	default:
		return nil, exit.With(exit.NotRunnable, err)
	}
}

// Supervise has a command that was started end with its permit, until no process of it is left. As Run, it
// returns an error for the exit code. renewed has a value after each renewal of the lease.
func (x *Execution) Supervise(p Holding, g Guardian, renewed <-chan struct{}) error {
	var overdue <-chan time.Time
	if x.MaxHold > 0 {
		timer := time.NewTimer(x.MaxHold)
		defer timer.Stop()
		overdue = timer.C
	}
	end := func(by, reason, why string) {
		g.Stop()
		if x.End == nil {
			x.End = &CutOff{by, reason}
		}
		x.Say("%s; ending the command", why)
	}
	lost, asked := p.Context().Done(), p.StopRequested().Done()
	var result error
	for {
		select {
		case <-renewed:
			g.Trust(p.Deadline())
		case <-lost:
			lost, asked = nil, nil
			by := "lost"
			if errors.Is(p.Err(), schedlock.ErrTooLong) {
				by = "at-most"
			}
			end(by, p.Err().Error(), p.Err().Error())
		case <-asked:
			asked = nil
			if p.Err() != nil {
				continue // it has ended: lost has a value
			}
			why := context.Cause(p.StopRequested())
			end("request", stopReason(why), why.Error())
		case <-overdue:
			end("max-hold", "", fmt.Sprintf("the permit was held for %v (--max-hold)", x.MaxHold))
		case e := <-g.Events():
			if e.Empty {
				return result
			}
			if e.Exited != nil {
				x.Cut = e.Exited.CutOff
				x.Ended = e.Exited.Ended
			}
			if code := codeOf(e); code != nil {
				result = code
			} else {
				x.report(p, e)
			}
		}
	}
}

// codeOf returns the exit code of an event that has one, as an error, or nil.
func codeOf(e guard.Event) error {
	switch {
	case e.Failed != nil:
		return exit.With(e.Failed.Code, errors.New(e.Failed.Text))
	case e.Exited != nil && e.Exited.ExitCode() != 0:
		return exit.With(e.Exited.ExitCode(), nil)
	case e.Died:
		return exit.Errorf(exit.GuardKilled, "the guard process was killed or stopped, so the command was killed; how it ended is not known")
	}
	return nil
}

// report writes a message about an event that changes no result.
func (x *Execution) report(p Holding, e guard.Event) {
	switch {
	case e.Cleared:
		if x.End == nil {
			x.End = &CutOff{By: "guard-killed"}
		}
		x.Say("the guard process was killed or stopped, so what the command had left running was killed")
	case e.Stopped:
		x.Say("the command is stopped, and the permit is kept: 'kill -CONT %[1]d' continues it; 'kill %[1]d', or ^C in the foreground, "+
			"ends it", os.Getpid())
	case e.Refused != "" && p.Err() != nil:
		x.Say("%s; the permit is lost, so another request may get it while that process runs", e.Refused)
	case e.Refused != "":
		x.Say("%s; the permit is kept until that process ends", e.Refused)
	case len(e.Left) > 0:
		x.Say("the command has exited and left %s running: the permit is kept until they end (--end-left ends them)", names(e.Left))
	}
}

// stopReason returns the reason of a request to stop.
func stopReason(cause error) string {
	var asked *concurrency.StepDownError
	if errors.As(cause, &asked) {
		return asked.Reason
	}
	return cause.Error()
}

// names lists processes.
func names(all []guard.Process) string {
	var out []string
	for i, p := range all {
		if i == 5 && len(all) > 6 {
			return strings.Join(out, ", ") + fmt.Sprintf(" and %d others", len(all)-i)
		}
		out = append(out, p.String())
	}
	return strings.Join(out, ", ")
}
