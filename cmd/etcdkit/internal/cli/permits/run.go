// Package permits has the verbs that acquire a permit, or end a request: run, hold, release and evict.
package permits

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/guarded"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/observe"
)

// runUsage is what `etcdkit run --help` says of the verb.
const runUsage = `Acquire a permit, run the command, and release the permit when the command and every process that it has
started have ended.

It is not for a line of cron that is on several machines: the permit is released when the command has ended, and
each machine whose clock is behind, or which has waited, runs it once more. 'etcdkit jobs run' runs it once.
NAME is that of a mutex, a semaphore or an election, and not of a job: 'etcdkit run backup' excludes no run of
'etcdkit jobs run backup'. They exclude each other if the command of the job is 'etcdkit run data -- ...', and this
one is 'etcdkit run data -- ...' too.

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

No reader is needed, of what the command writes or of messages, also while this process waits: messages delay
nothing, and are dropped if their reader does not read.

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

// running is what `run` is asked for.
type running struct {
	guarded.Execution
	ask      asking
	exitFile string
}

// Run returns the verb run.
func Run(c *verb.Call) *cobra.Command {
	x := running{Execution: guarded.Execution{Call: c, Verb: "run"}}
	cmd := &cobra.Command{
		Use:   "run NAME -- COMMAND [ARG...]",
		Short: "Run a command under a permit, and have it dead before the permit is given to another",
		Long:  runUsage,
		Example: "etcdkit run -N batch nightly-report -- ./report.sh\n" +
			"etcdkit run -N batch import --limit 3 --wait 30s -- import-file a.csv\n" +
			"etcdkit run -N batch mailer --leader --grace 10s -- ./mailer",
		Args: verb.Arguments(2, -1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			defer func() { x.noteExit(exit.OrInterrupted(cmd.Context(), err)) }()
			if err := x.read(cmd, args); err != nil {
				return err
			}
			if err := x.clearExitFile(); err != nil {
				return err
			}
			return x.execute(cmd.Context())
		},
	}
	f := cmd.Flags()
	x.ask.define(f)
	f.DurationVar(&x.Grace, "grace", 2*time.Second, "time between SIGTERM and SIGKILL")
	f.DurationVar(&x.MaxHold, "max-hold", 0, "end the command after so long, and then release the permit")
	f.DurationVar(&x.TTL, "ttl", 0, "how long etcd keeps the permit after the last renewal (default: 15s, or what --grace needs)")
	f.BoolVar(&x.EndLeft, "end-left", false, "when the command has exited, end what it has left running (default: wait for it)")
	f.StringVar(&x.exitFile, "exit-file", "", "write how it ended, as JSON, to this file, which is emptied at the start; "+
		"if the command line is wrong (64), it may be left as it was")
	return cmd
}

// read takes the arguments, and checks them and the flags.
func (x *running) read(cmd *cobra.Command, args []string) (err error) {
	if at := cmd.ArgsLenAtDash(); at != 1 {
		return exit.Usagef("the command follows NAME and --, as in: etcdkit run NAME -- COMMAND")
	}
	if x.Kind, err = x.ask.check(cmd.Flags()); err != nil {
		return err
	}
	if err := checkName(args[0]); err != nil {
		return err
	}
	x.Name, x.Command = args[0], args[1:]
	_, _, err = x.Times()
	return err
}

// hintTime bounds the read for a hint.
const hintTime = time.Second

// isJob reports whether the namespace has a job of that name and no semaphore: its user may take the one for the other.
// It returns false if etcd does not answer, or the user may not read that.
func (x *running) isJob(ctx context.Context, client *clientv3.Client) bool {
	space, err := x.Call.Etcd.Space()
	if err != nil || x.Kind == concurrency.KindSemaphore {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, hintTime)
	defer cancel()
	one := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly()}
	resp, err := client.Txn(ctx).Then(clientv3.OpGet(space.Job(x.Name).Range, one...),
		clientv3.OpGet(space.Queue(keyspace.Semaphore, x.Name).Range, one...)).Commit()
	return err == nil && resp.Responses[0].GetResponseRange().GetCount() > 0 && resp.Responses[1].GetResponseRange().GetCount() == 0
}

// execute acquires the permit and runs the command.
func (x *running) execute(ctx context.Context) error {
	opts, err := x.Begin()
	if err != nil {
		return err
	}
	renewed, hooks := guarded.Renewals()
	reports := &waitReports{call: x.Call, kind: x.Kind}
	opts.Hooks = []observe.Hooks{reports.hooks(), hooks}
	return x.Call.Connected(ctx, opts, func(ctx context.Context, client *clientv3.Client, sess *concurrency.Session) error {
		reports.sess.Store(sess)
		if x.isJob(ctx, client) {
			x.Say("%s is a job in this namespace: this %s is another lock, and excludes no run of the job (etcdkit run --help)", x.Name, x.Kind)
		}
		p, err := acquire(ctx, x.Call.Attending, sess, x.ask, x.Kind, x.Name, x.Call.Etcd.Timeout)
		if err != nil {
			return err
		}
		guard := p.Guard()
		err = x.Run(ctx, p, x.Environment(guard.KeyBytes(), p.Token()), renewed)
		if lost := (*concurrency.LostError)(nil); errors.As(p.Err(), &lost) {
			return x.Over(exit.Lost, lost)
		}
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), x.Call.Etcd.Timeout)
		defer cancel()
		switch failed := p.Release(bounded); {
		case errors.Is(failed, concurrency.ErrLost):
			return exit.Errorf(exit.Lost, "%w: its key was gone when the command had ended", failed)
		case failed != nil:
			x.Say("%v", failed)
		}
		return err
	})
}
