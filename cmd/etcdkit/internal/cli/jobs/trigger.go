package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/schedlock"
)

func trigger(c *verb.Call) *cobra.Command {
	var reason string
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "trigger NAME",
		Short: "Ask the processes of a job to run it now, once",
		Long: `Ask the processes of a job to run it now, once, as a tick of its own, and wait until one has started it. Its
function is in the services: they must use the job through Locker.Job. The tick is the time at which that
process starts it, by its clock; the clock of this machine does not matter. If none starts it within --wait,
the exit code is 75 and the message says why: the job is paused, runs or cools down, or no such process
lives. A process that receives the request within a minute may start it later.`,
		Example: "etcdkit jobs trigger -N payments invoices --reason 'customer waits'",
		Args:    verb.Arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if wait < 0 {
				return exit.Usagef("--wait %v is negative", wait)
			}
			return changing(cmd.Context(), c, "jobs trigger", func(ctx context.Context, sess *concurrency.Session, l *schedlock.Locker) error {
				id, err := l.RequestRun(ctx, args[0], reason)
				if err != nil {
					return err
				}
				r, err := started(context.WithoutCancel(ctx), cmd.Context(), l, args[0], id, wait, c.Etcd.Timeout)
				change := record.Change{Verb: "trigger", Name: "job/" + args[0], Reason: reason}
				if err != nil { // a process may start it later
					change.Failed = err.Error()
				}
				verb.Account(ctx, c, sess, change)
				if err != nil {
					return err
				}
				return printRun(c, args[0], showRun(r))
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the logs of the services and the list of changes")
	cmd.Flags().DurationVar(&wait, "wait", 10*time.Second, "how long to wait for the start")
	return cmd
}

// started waits until a request has started a run. bound is that of the last request to etcd.
func started(ctx, caller context.Context, l *schedlock.Locker, name, id string, wait, bound time.Duration) (schedlock.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer context.AfterFunc(caller, cancel)()
	for {
		r, err := l.Requested(ctx, name, id)
		if err == nil || !errors.Is(err, schedlock.ErrGone) && ctx.Err() == nil {
			return r, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			if err := caller.Err(); err != nil {
				return r, err
			}
			last, done := context.WithTimeout(caller, bound)
			defer done()
			if r, err := l.Requested(last, name, id); !errors.Is(err, schedlock.ErrGone) { // without etcd, it is not known
				return r, err
			}
			st, err := l.Status(last, name)
			why := st.Unanswered()
			if err != nil {
				why = fmt.Sprintf("why is not known: %v", err)
			}
			return r, exit.Errorf(exit.NotAcquired, "job %s: no process has started it within %v: %s", name, wait, why)
		}
	}
}
