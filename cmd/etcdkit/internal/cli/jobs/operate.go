package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/schedlock"
)

// errNoReason: an operator who finds the change must find out why it was made.
var errNoReason = exit.Usagef("--reason is missing")

func pause(c *verb.Call) *cobra.Command {
	var reason string
	var early bool
	cmd := &cobra.Command{
		Use:   "pause NAME",
		Short: "Keep a job from starting, in all processes, until it is resumed",
		Long: `Keep a job from starting, in all processes, until 'etcdkit jobs resume'. An active run continues. Ticks
that come meanwhile are skipped.`,
		Example: "etcdkit jobs pause -N payments invoices --reason 'database migration'",
		Args:    verb.Arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if reason == "" {
				return errNoReason
			}
			var before schedlock.Status
			err := changeJob(cmd.Context(), c, "pause", args[0], reason, func(ctx context.Context, l *schedlock.Locker) error {
				var opts []schedlock.PauseOption
				if early {
					opts = append(opts, schedlock.BeforeFirstRun())
				}
				before, _ = l.Status(ctx, args[0]) // Pause says what is wrong
				err := l.Pause(ctx, args[0], reason, opts...)
				if errors.Is(err, schedlock.ErrUnknownJob) {
					err = fmt.Errorf("pause job %q: %w; if the name is right, add --before-first-run", args[0], schedlock.ErrUnknownJob)
				}
				return err
			})
			if p := before.Paused; err == nil && p != nil {
				fmt.Fprintf(c.Std.Err, "%s was paused before, by %s since %s: %s. This pause takes the place of that one; one resume ends it.\n",
					output.Printable(args[0]), output.Printable(p.By), output.Instant(p.Since), output.Printable(output.OrDash(p.Reason)))
			}
			return err
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for other operators (required)")
	cmd.Flags().BoolVar(&early, "before-first-run", false, "accept a job of which nothing is in etcd")
	return cmd
}

func resume(c *verb.Call) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     "resume NAME",
		Short:   "Let a paused job start again, from its next tick on",
		Example: "etcdkit jobs resume -N payments invoices --reason 'the migration is done'",
		Args:    verb.Arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeJob(cmd.Context(), c, "resume", args[0], reason, func(ctx context.Context, l *schedlock.Locker) error {
				return l.Resume(ctx, args[0])
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the list of changes")
	return cmd
}

func unlock(c *verb.Call) *cobra.Command {
	var reason string
	var token int64
	cmd := &cobra.Command{
		Use:   "unlock NAME",
		Short: "End the active run of a job by force, or its cooldown",
		Long: `End the active run of a job, and its cooldown (AtLeast), so that the job can start again. The tick is not
started again. The process of the run learns of it through a watch, possibly after another run has
started: then the work of both overlaps, and only the run's guard excludes effects of the first.

Only the run that the question names is ended, or the one with --token: 'etcdkit jobs -o json' and 'etcdkit
jobs history -o json' have the token of an active run. If that run has ended by then, nothing is changed and
the exit code is 1. With --yes, --token is required while a run is active; a cooldown has none.`,
		Example: "etcdkit jobs unlock -N payments invoices --reason 'host is gone'\n" +
			"etcdkit jobs unlock -N payments invoices --token 4711 --yes --reason 'host is gone'",
		Args: verb.Arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case reason == "":
				return errNoReason
			case cmd.Flags().Changed("token") && token <= 0:
				return exit.Usagef("--token %d is not positive", token)
			}
			return unlockOne(cmd.Context(), c, args[0], reason, token)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the history of the job (required)")
	cmd.Flags().Int64Var(&token, "token", 0, "token of the run: another one is not ended")
	return cmd
}

// unlockOne ends a run that is active, the one with a token if it is not 0, or a cooldown: what was confirmed, and
// nothing that has begun since.
func unlockOne(ctx context.Context, c *verb.Call, name, reason string, token int64) error {
	var st schedlock.Status
	var run schedlock.Record
	err := locker(ctx, c, "jobs unlock", func(ctx context.Context, l *schedlock.Locker) (err error) {
		if st, err = l.Status(ctx, name); err != nil || !st.Running {
			return err
		}
		records, err := l.History(ctx, name)
		for _, r := range records {
			if r.Token == st.Token {
				run = r
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	active := fmt.Sprintf("the run of job %s with token %d, tick %s, started by %s at %s", name, st.Token, output.Instant(run.Tick),
		output.OrDash(run.Owner), output.Instant(run.Start))
	switch {
	case token != 0 && token != st.Token && st.Token != 0:
		return fmt.Errorf("unlock job %q: the run with token %d is not active; nothing was changed. Active is %s", name, token, active)
	case token != 0 && token != st.Token:
		return fmt.Errorf("unlock job %q: the run with token %d is not active; nothing was changed", name, token)
	case !st.Running && !st.CoolingDown:
		return fmt.Errorf("unlock job %q: %w", name, schedlock.ErrNotRunning)
	case st.Running && token == 0 && !c.Asks():
		return exit.Usagef("%s, is active: to end it, add --token %d and --yes", active, st.Token)
	}
	question := "End the cooldown of job " + name + ", so that it may start again at once"
	if st.Running {
		question = "End " + active + ", by force, even if its work then overlaps with the next run"
	}
	if err := c.Confirm(ctx, question); err != nil {
		return err
	}
	return changeJob(ctx, c, "unlock", name, reason, func(ctx context.Context, l *schedlock.Locker) error {
		err := l.Unlock(ctx, name, reason, schedlock.OnlyRun(st.Token))
		if errors.Is(err, schedlock.ErrNotRunning) {
			err = fmt.Errorf("unlock job %q: what was to be ended has ended by itself; nothing was changed", name)
		}
		return err
	})
}

// changeJob changes a job, records that if it has a reason, and prints its state.
func changeJob(ctx context.Context, c *verb.Call, do, name, reason string, change func(context.Context, *schedlock.Locker) error) error {
	return changing(ctx, c, "jobs "+do, func(ctx context.Context, sess *concurrency.Session, l *schedlock.Locker) error {
		if err := change(ctx, l); err != nil {
			return err
		}
		verb.Account(ctx, c, sess, record.Change{Verb: do, Name: "job/" + name, Reason: reason})
		st, err := l.Status(ctx, name)
		if err != nil {
			return fmt.Errorf("the change was made; %w", err)
		}
		j := showJob(st, time.Now())
		return c.PrintChange(j, func(t *output.Table) { t.Line(name + ": " + j.state()) })
	})
}

func forget(c *verb.Call) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "forget NAME",
		Short: "Remove what a retired job has left in etcd",
		Long: `Remove the records and the pause of a job that no process uses any more. It is refused while the job runs
or cools down, and while a live process has it by Locker.Job, has its settings or has claimed one of its
recorded ticks. A live process that uses the job otherwise and has claimed nothing yet cannot be known; for
it the job is a new one.

Late calls for the job's earlier ticks are refused for a day.`,
		Example: "etcdkit jobs forget -N payments invoices-2024",
		Args:    verb.Arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.Confirm(cmd.Context(), fmt.Sprintf("Remove the records and the pause of job %s", args[0])); err != nil {
				return err
			}
			return changing(cmd.Context(), c, "jobs forget", func(ctx context.Context, sess *concurrency.Session, l *schedlock.Locker) error {
				if err := l.Forget(ctx, args[0]); err != nil {
					return err
				}
				verb.Record(ctx, c, sess, record.Change{Verb: "forget", Name: "job/" + args[0], Reason: reason})
				return c.PrintChange(struct {
					output.Form
					Name      string `json:"name"`
					Forgotten bool   `json:"forgotten"`
				}{output.FormOf("job-forgotten"), args[0], true}, func(t *output.Table) { t.Line(args[0] + ": forgotten") })
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the list of changes, which has the change also without one")
	return cmd
}
