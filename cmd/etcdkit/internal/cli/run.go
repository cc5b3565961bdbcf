package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/guard"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/observe"
	"github.com/etcdkit/etcdkit/schedlock"
)

// runUsage is what `etcdkit run --help` says of the verb.
const runUsage = `Acquire a permit, run the command, and release the permit when the command and every process that it has
started have ended.

It is not for a line of cron that is on several machines: the permit is released when the command has ended, and
each machine whose clock is behind, or which has waited, runs it once more. 'etcdkit jobs run' runs it once.

If the permit is lost, because etcd cannot be reached for instance, SIGTERM is sent to all of these
processes and SIGKILL after --grace: before etcd can give the permit to another request. A guard process
does the same if this one is killed or stopped. If an operator asks for the permit ('etcdkit evict',
'etcdkit elections step-down'), or --max-hold has passed, the processes are ended in the same way, and the
permit is released when none is left.

Exceptions, in which processes can outlive the permit: this process and the guard are both killed at once
(the command itself dies then, and not what it has started), or both are stopped; a process sleeps
uninterruptibly in the kernel, or may not be signalled by this user, as a setuid program; another process
works for the command, as the daemon that runs its container; a process has entered another PID namespace
('nsenter'), whose init gets what it leaves behind; a program forks and exits faster than /proc can be read.
And those of every permit (docs/guarantees.md, exceptions): it is taken by force ('etcdkit evict --force', or a
program's Evict or ReleaseID), its lease, its presence key or its own key is removed by hand, a leader of etcd is stopped and continued or
cut off, a machine is paused with its clocks.

The command gets standard input and the open files that this process was started with. It gets once each
SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP and SIGCONT that this process gets, also
if a terminal or a supervisor has sent it to the whole process group. While this process waits for the permit,
the first four withdraw the request; later they continue a stopped command too, to end. ^Z stops the command
alone, and the permit is kept: the shell shows no prompt, ^C ends the command, and SIGCONT to this process
continues it, if the permit has not been lost. Signals that are ignored at the start stay ignored if they are
SIGHUP, SIGINT, SIGTSTP, SIGTTIN or SIGTTOU; the command has the defaults of others.

Messages on standard error delay nothing: if their reader does not read, they are dropped.

The environment of the command has, besides its own: ETCDKIT_KIND, ETCDKIT_NAME, ETCDKIT_NAMESPACE, ETCDKIT_PREFIX;
ETCDKIT_TOKEN, the fencing token; ETCDKIT_GUARD_KEY and ETCDKIT_GUARD_MOD_REVISION, for a Txn that takes
effect only while the permit exists.

The exit code is the command's, or 128 and the number of the signal that has ended it; 75 if no permit was
granted, 76 if the permit was lost, 126 if the command cannot be executed, 127 if it is not found, and the
codes of every verb: 64 also if --limit differs from the stored limit.

A command can exit with these codes itself. --exit-file says which it was, as one line of JSON with these members:
  schema    etcdkit.exit/v1
  result    command: code is the command's. Or why it is not: interrupted (by a signal, before the command
            was started), usage, unreachable, not-acquired, lost, denied, not-executable, not-found,
            guard-killed (the command was killed too, and how it ended is not known), failed
  code      the exit code
  ended_by  if etcdkit has ended the command: max-hold, request (evict, step-down) or lost; guard-killed if it has
            ended what the command had left running, because its guard process was killed or stopped
  reason    of a request or a loss

It runs on Linux only, with the /proc of its own PID namespace.`

// execution is what `run` is asked for.
type execution struct {
	ask      asking
	kind     concurrency.QueueKind
	name     string
	command  []string
	ttl      time.Duration
	grace    time.Duration
	maxHold  time.Duration
	endLeft  bool
	exitFile string

	title string // begins messages

	end *cutOff // why etcdkit has ended the command, or nil
}

// cutOff is why a command was ended, as the exit file has it.
type cutOff struct {
	by, reason string
}

func (a *app) run() *cobra.Command {
	var x execution
	cmd := &cobra.Command{
		Use:     "run NAME -- COMMAND [ARG...]",
		Short:   "Run a command under a permit, and have it dead before the permit is given to another",
		Long:    runUsage,
		Example: "etcdkit run -N batch nightly-report -- ./report.sh\netcdkit run -N batch import --limit 3 --wait 30s -- import-file a.csv\netcdkit run -N batch mailer --leader --grace 10s -- ./mailer",
		Args:    arguments(2, -1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			defer func() { a.noteExit(x, orInterrupted(cmd.Context(), err)) }()
			if err := x.read(cmd, args); err != nil {
				return err
			}
			if err := x.clearExitFile(); err != nil {
				return err
			}
			return a.execute(cmd.Context(), &x)
		},
	}
	f := cmd.Flags()
	x.ask.define(f)
	f.DurationVar(&x.grace, "grace", 2*time.Second, "time between SIGTERM and SIGKILL")
	f.DurationVar(&x.maxHold, "max-hold", 0, "end the command after so long, and then release the permit")
	f.DurationVar(&x.ttl, "ttl", 0, "how long etcd keeps the permit after the last renewal (default: 15s, or what --grace needs)")
	f.BoolVar(&x.endLeft, "end-left", false, "when the command has exited, end what it has left running (default: wait for it)")
	f.StringVar(&x.exitFile, "exit-file", "", "write how it ended, as JSON, to this file, which is emptied at the start; if the command line is wrong (64), it may be left as it was")
	return cmd
}

// read takes the arguments, and checks them and the flags.
func (x *execution) read(cmd *cobra.Command, args []string) (err error) {
	if at := cmd.ArgsLenAtDash(); at != 1 {
		return usageError{errors.New("the command follows NAME and --, as in: etcdkit run NAME -- COMMAND")}
	}
	if x.kind, err = x.ask.check(cmd.Flags()); err != nil {
		return err
	}
	if err := checkName(args[0]); err != nil {
		return err
	}
	x.name, x.command = args[0], args[1:]
	_, _, err = x.times()
	return err
}

// electionTime is the part of the margin that covers an election of etcd's leader, and killTime the part
// in which the kernel ends processes.
const (
	electionTime = 1200 * time.Millisecond
	killTime     = 500 * time.Millisecond
)

// longestTTL is the greatest TTL of a session.
const longestTTL = 24 * time.Hour

// times returns the TTL and margin of the session, within which the grace fits.
func (x execution) times() (ttl, margin time.Duration, err error) {
	switch {
	case x.grace < 0:
		return 0, 0, usageError{fmt.Errorf("--grace %v is negative", x.grace)}
	case x.maxHold < 0:
		return 0, 0, usageError{fmt.Errorf("--max-hold %v is negative", x.maxHold)}
	}
	if most := longestTTL/3 - electionTime - killTime; x.grace > most {
		return 0, 0, usageError{fmt.Errorf("--grace %v is above %v: the TTL of the permit is three times as long, and at most %v", x.grace, most, longestTTL)}
	}
	margin = electionTime + x.grace + killTime
	least := (3*margin + time.Second - 1).Truncate(time.Second)
	ttl = x.ttl
	if ttl == 0 {
		ttl = max(15*time.Second, least)
	}
	if ttl < least || ttl > longestTTL || ttl%time.Second != 0 {
		return 0, 0, usageError{fmt.Errorf("--ttl %v is not a number of whole seconds, at least %v with --grace %v, and at most %v: a third of it ends the command in time", x.ttl, least, x.grace, longestTTL)}
	}
	return ttl, margin, nil
}

// begin begins a verb that runs commands under a guard, and returns the options of its session.
func (x *execution) begin(a *app, verb string) (*concurrency.SessionOptions, error) {
	ttl, margin, err := x.times()
	if err != nil {
		return nil, err
	}
	if err := guard.Supported(); err != nil {
		return nil, &exitError{exitNotRunnable, err}
	}
	a.surviveReader()
	return &concurrency.SessionOptions{Owner: owner(verb), TTL: ttl, Margin: margin}, nil
}

// execute acquires the permit and runs the command.
func (a *app) execute(ctx context.Context, x *execution) error {
	opts, err := x.begin(a, "run")
	if err != nil {
		return err
	}
	renewed, hooks := renewals()
	reports := &waitReports{app: a, kind: x.kind}
	opts.Hooks = []observe.Hooks{reports.hooks(), hooks}
	return a.connected(ctx, opts, func(ctx context.Context, _ *clientv3.Client, sess *concurrency.Session) error {
		reports.sess.Store(sess)
		p, err := a.acquire(ctx, sess, x.ask, x.kind, x.name)
		if err != nil {
			return err
		}
		guard := p.Guard()
		err = a.guarded(ctx, x, p, x.environment(a, guard.KeyBytes(), p.Token()), renewed)
		if lost := (*concurrency.LostError)(nil); errors.As(p.Err(), &lost) {
			return &exitError{exitLost, fmt.Errorf("%w: the command was ended", lost)}
		}
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.etcd.timeout)
		defer cancel()
		switch failed := p.Release(bounded); {
		case errors.Is(failed, concurrency.ErrLost):
			return &exitError{exitLost, fmt.Errorf("%w: its key was gone when the command had ended", failed)}
		case failed != nil:
			a.say("%v", failed)
		}
		return err
	})
}

// renewals returns a channel that has a value after each renewal of a session's lease, and the hooks for that.
func renewals() (<-chan struct{}, observe.Hooks) {
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

// say writes a message of run, or of jobs run, to standard error.
func (a *app) say(format string, args ...any) {
	fmt.Fprintf(a.std.Err, "etcdkit %s: %s\n", cmp.Or(a.running, "run"), printable(fmt.Sprintf(format, args...)))
}

// say is that of a, with the job's name where there are several.
func (x *execution) say(a *app, format string, args ...any) { a.say(x.title+format, args...) }

// holding is the time for which a command may run: a permit, or a run of a job.
type holding interface {
	Deadline() time.Time
	Context() context.Context
	StopRequested() context.Context
	Err() error
}

// start starts the command under its guard, unless a signal has come before: from then on the signals are the
// command's.
func (a *app) start(ctx context.Context, x *execution, p holding, env []string) (*guard.Guarded, error) {
	g, err := guard.Start(ctx, guard.Command{Args: x.command, Env: env, Grace: x.grace, EndLeft: x.endLeft}, p.Deadline(), func() error {
		a.uncatch()
		return ctx.Err()
	})
	var killed *guard.KilledError
	switch {
	case err == nil:
		return g, nil
	case errors.As(err, &killed) && slices.Contains(ending, os.Signal(killed.Signal)): // one to the process group
		return nil, interrupted{killed.Signal}
	case ctx.Err() != nil && p.Err() != nil: // its time was over, or it was lost, before the guard was ready
		return nil, &exitError{exitNotRunnable, fmt.Errorf("the command was not started: %w", p.Err())}
	case ctx.Err() != nil:
		return nil, ctx.Err()
	default:
		return nil, &exitError{exitNotRunnable, err}
	}
}

// guarded runs the command under the guard, until no process of it is left. It returns the command's exit
// code as an error, nil for 0.
func (a *app) guarded(ctx context.Context, x *execution, p holding, env []string, renewed <-chan struct{}) error {
	g, err := a.start(ctx, x, p, env)
	if err != nil {
		return err
	}
	return supervise(a, x, p, g, renewed)
}

// guardian is a command under a guard.
type guardian interface {
	Events() <-chan guard.Event
	Trust(until time.Time)
	Stop()
}

// supervise is guarded for a command that was started.
func supervise(a *app, x *execution, p holding, g guardian, renewed <-chan struct{}) error {
	var overdue <-chan time.Time
	if x.maxHold > 0 {
		timer := time.NewTimer(x.maxHold)
		defer timer.Stop()
		overdue = timer.C
	}
	end := func(by, reason, why string) {
		g.Stop()
		if x.end == nil {
			x.end = &cutOff{by, reason}
		}
		x.say(a, "%s; ending the command", why)
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
			end("max-hold", "", fmt.Sprintf("the permit was held for %v (--max-hold)", x.maxHold))
		case e := <-g.Events():
			switch {
			case e.Empty:
				return result
			case e.Failed != nil:
				result = &exitError{e.Failed.Code, errors.New(e.Failed.Text)}
			case e.Exited != nil && e.Exited.ExitCode() != 0:
				result = &exitError{e.Exited.ExitCode(), nil}
			case e.Died:
				result = &exitError{128 + 9, errors.New("the guard process was killed or stopped, so the command was killed; how it ended is not known")}
			default:
				x.report(a, p, e)
			}
		}
	}
}

// report writes a message about an event that changes no result.
func (x *execution) report(a *app, p holding, e guard.Event) {
	switch {
	case e.Cleared:
		if x.end == nil {
			x.end = &cutOff{by: "guard-killed"}
		}
		x.say(a, "the guard process was killed or stopped, so what the command had left running was killed")
	case e.Stopped:
		x.say(a, "the command is stopped, and the permit is kept: 'kill -CONT %[1]d' continues it; 'kill %[1]d', or ^C in the foreground, ends it", os.Getpid())
	case e.Refused != "" && p.Err() != nil:
		x.say(a, "%s; the permit is lost, so another request may get it while that process runs", e.Refused)
	case e.Refused != "":
		x.say(a, "%s; the permit is kept until that process ends", e.Refused)
	case len(e.Left) > 0:
		x.say(a, "the command has exited and left %s running: the permit is kept until they end (--end-left ends them)", names(e.Left))
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
