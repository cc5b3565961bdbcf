// Package jobs has the verb jobs: it shows scheduled jobs and their runs, and pauses, resumes, unlocks, triggers and
// forgets them. `jobs run` is in package cron.
package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/schedlock"
)

// Jobs returns the verb jobs, without run.
func Jobs(c *verb.Call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "jobs",
		Short: "List scheduled jobs, show and check their runs, run, pause, resume, unlock, trigger and forget them",
		Long: `List the jobs of package schedlock with their states and their latest runs.

STATE is running, no process (none that lives has the job's schedule any more: start or restart one, or forget a
retired job), cooling down (AtLeast keeps the job from starting), idle or never run, and paused beside one of these.
NEXT is the next fire time, if the job is not paused: for a job with a period while a process
that uses the job lives; for one of Locker.Job, gocronlock.Cron.Plan or 'etcdkit cron' as its processes have planned it, while
one of them lives; for one of 'etcdkit jobs run', or of gocronlock.NewCron without Plan, as its latest run has planned it.
If a planned time has come half a minute ago and nothing keeps the job from starting, NEXT says since when it is overdue.`,
		Example: "etcdkit jobs -N payments\netcdkit jobs -N payments -o json\netcdkit jobs history -N payments invoices",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.Open(cmd.Context(), "jobs", &concurrency.SessionOptions{}, func(ctx context.Context, sess *concurrency.Session) error {
				return List(ctx, c, sess)
			})
		},
	}
	cmd.AddCommand(&cobra.Command{Use: "list", Short: "List the jobs, as 'etcdkit jobs' does", Args: verb.Arguments(0, 0),
		RunE: cmd.RunE, Example: "etcdkit jobs list -N payments"})
	cmd.AddCommand(check(c), history(c), watch(c), pause(c), resume(c), unlock(c), trigger(c), forget(c))
	return cmd
}

// locker runs fn with a Locker on a session.
func locker(ctx context.Context, c *verb.Call, name string, fn func(context.Context, *schedlock.Locker) error) error {
	return changing(ctx, c, name, func(ctx context.Context, _ *concurrency.Session, l *schedlock.Locker) error { return fn(ctx, l) })
}

// changing is locker for a change, which the session accounts for.
func changing(ctx context.Context, c *verb.Call, name string, fn func(context.Context, *concurrency.Session, *schedlock.Locker) error) error {
	return c.Session(ctx, name, func(ctx context.Context, sess *concurrency.Session) error {
		l, err := schedlock.New(sess, nil)
		if err != nil {
			return err
		}
		return fn(ctx, sess, l)
	})
}

// runsOf runs fn with the state of a job and its recorded runs, the latest first.
func runsOf(ctx context.Context, c *verb.Call, name, job string, fn func(schedlock.Status, []schedlock.Record) error) error {
	return locker(ctx, c, name, func(ctx context.Context, l *schedlock.Locker) error {
		st, err := l.Status(ctx, job)
		if err != nil {
			return err
		}
		records, err := l.History(ctx, job)
		if err != nil {
			return err
		}
		return fn(st, records)
	})
}

// shownJob is a job as JSON.
type shownJob struct {
	output.Form
	Name        string        `json:"name"`
	Running     bool          `json:"running"`
	Token       output.Number `json:"token,omitempty"` // of the active run
	CoolingDown bool          `json:"cooling_down"`
	Paused      *shownPause   `json:"paused,omitempty"`
	Settings    string        `json:"settings,omitempty"` // of the live processes that use it
	Last        *shownRun     `json:"last,omitempty"`
	Next        time.Time     `json:"next,omitzero"`
	Overdue     time.Time     `json:"overdue,omitzero"` // since when no process has started it
	NoProcess   bool          `json:"no_process,omitempty"`
}

type shownPause struct {
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since,omitzero"`
}

func showJob(st schedlock.Status, now time.Time) shownJob {
	j := shownJob{Form: output.FormOf("job"), Name: st.Job, Running: st.Running, Token: output.Number(st.Token),
		CoolingDown: st.CoolingDown, Settings: st.Settings, Next: st.NextFire(now), Overdue: st.Overdue(now)}
	j.NoProcess = st.Plan != nil && st.Plan.Gone
	if st.Paused != nil {
		j.Paused = &shownPause{st.Paused.By, st.Paused.Reason, st.Paused.Since.UTC()}
	}
	if st.Last != nil {
		r := showRun(*st.Last)
		j.Last = &r
	}
	return j
}

// next returns the next fire time in words, or the earlier one that no process has started.
func (j shownJob) next() string {
	if !j.Overdue.IsZero() {
		return "overdue since " + output.Instant(j.Overdue)
	}
	return output.Instant(j.Next)
}

// state returns the state in words.
func (j shownJob) state() string {
	state := "idle"
	switch {
	case j.Running:
		state = "running"
	case j.NoProcess:
		state = "no process"
	case j.CoolingDown:
		state = "cooling down"
	case j.Last == nil && j.Paused == nil:
		state = "never run"
	}
	if j.Paused != nil {
		state = strings.TrimPrefix(state+", paused", "idle, ")
	}
	return state
}

// List prints the jobs of the session's namespace, and waits for each answer as long as --command-timeout. It
// returns an error of etcd, and of ctx.
func List(ctx context.Context, c *verb.Call, sess *concurrency.Session) error {
	l, err := schedlock.New(sess, nil)
	if err != nil {
		return err
	}
	ctx, alive, cancel := c.Patience(ctx) // there may be many
	defer cancel()
	names, err := l.Jobs(ctx)
	if err != nil {
		return verb.Because(ctx, err)
	}
	jobs := make([]shownJob, len(names))
	err = c.ReadEach(len(names), "jobs", func(i int) error {
		st, err := l.Status(ctx, names[i])
		if err == nil {
			jobs[i] = showJob(st, time.Now())
		} else if errors.Is(err, schedlock.ErrUnknownJob) { // removed meanwhile
			err = nil
		}
		alive()
		return err
	})
	if err != nil {
		return verb.Because(ctx, err)
	}
	jobs = slices.DeleteFunc(jobs, func(j shownJob) bool { return j.Name == "" })
	if len(jobs) == 0 {
		fmt.Fprintf(c.Std.Err, "etcd has no job in namespace %s: 'etcdkit ls' without -N lists the namespaces\n", output.ShellWord(c.Etcd.Namespace))
	}
	return c.Print(struct {
		output.Form
		Jobs []shownJob `json:"jobs"`
	}{output.FormOf("jobs"), jobs}, func(t *output.Table) {
		t.Row("JOB", "STATE", "LAST TICK", "OUTCOME", "OWNER", "NEXT", "PAUSED")
		for _, j := range jobs {
			last := shownRun{}
			if j.Last != nil {
				last = *j.Last
			}
			paused := ""
			switch {
			case j.Paused == nil:
			case j.Paused.By == "":
				paused = "by a record that cannot be read"
			default:
				paused = j.Paused.By + ": " + output.OrDash(j.Paused.Reason)
			}
			t.Row(j.Name, j.state(), output.Instant(last.Tick), output.OrDash(string(last.State)), output.OrDash(last.Owner),
				j.next(), output.OrDash(paused))
		}
	})
}
