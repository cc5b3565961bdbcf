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
	"github.com/etcdkit/etcdkit/internal/ticks"
	"github.com/etcdkit/etcdkit/schedlock"
)

// shownRun is the record of a tick as JSON, or of ticks without one.
type shownRun struct {
	Tick    time.Time       `json:"tick"`
	State   schedlock.State `json:"state"`
	Attempt int             `json:"attempt,omitempty"`
	Token   output.Number   `json:"token,omitempty"` // while it is active
	Owner   string          `json:"owner,omitempty"`
	Start   time.Time       `json:"start,omitzero"`
	End     time.Time       `json:"end,omitzero"`
	Took    *output.Seconds `json:"duration_seconds,omitempty"`
	Error   string          `json:"error,omitempty"`
	By      string          `json:"unlocked_by,omitempty"`
	Request string          `json:"request,omitempty"` // the id of the request by which it was triggered
	Earlier []shownRun      `json:"earlier,omitempty"` // the attempts before, oldest first
	Skipped *skippedTicks   `json:"skipped,omitempty"`
}

// skippedTicks are ticks of a job with a period that no process has started. Of them nothing is stored.
type skippedTicks struct {
	Count int       `json:"count"`
	Until time.Time `json:"until"` // the latest of them
}

func showRun(r schedlock.Record) shownRun {
	s := shownRun{Tick: r.Tick.UTC(), State: r.State, Attempt: r.Attempt, Token: output.Number(r.Token), Owner: r.Owner,
		Start: r.Start.UTC(), End: r.End.UTC(), Error: r.Error, By: r.By, Request: r.Request}
	if !r.Start.IsZero() && !r.End.IsZero() {
		s.Took = new(output.Seconds(max(0, r.End.Sub(r.Start))))
	}
	for _, e := range r.Earlier {
		s.Earlier = append(s.Earlier, showRun(e))
	}
	return s
}

// withSkipped adds to records, the latest first, the ticks between two of them that no process has
// started, if the job has a period. None was skipped before a record that does not count yet.
func withSkipped(records []schedlock.Record, settings string, now time.Time) []shownRun {
	out := make([]shownRun, 0, len(records))
	period, known := record.PeriodOf(settings)
	for i, r := range records {
		out = append(out, showRun(r))
		if !known || period < ticks.Smallest || i+1 == len(records) || !counts(r, now) {
			continue
		}
		former := records[i+1]
		if no := ticks.Between(period, former.Tick, former.End, r.Tick); no.Count > 0 {
			out = append(out, shownRun{Tick: no.First, State: skipped, Error: no.Why, Skipped: &skippedTicks{no.Count, no.Last}})
		}
	}
	return out
}

// skipped is the state of ticks that no process has started.
const skipped schedlock.State = "skipped"

func history(c *verb.Call) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "history NAME",
		Short: "Show the recorded runs of a job, the latest first",
		Long: `Show the recorded runs of a job, the latest tick first.

STATE is running, done, failed, lost (the process of the run died or was cut off), unlocked, unreadable (of a later
release), or skipped. It is that of
the latest attempt; -o json has the earlier ones too. A run that was asked for by 'etcdkit jobs trigger' is marked as
triggered, and OWNER of one of 'etcdkit jobs run --now' has that.
Nothing is stored of a skipped tick. If the job has a period, and a process that uses the job lives,
ticks between two records that have none are shown as skipped.`,
		Example: "etcdkit jobs history -N payments invoices\netcdkit jobs history -N payments invoices --limit 5 -o json",
		Args:    verb.Arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return exit.Usagef("--limit %d is negative", limit)
			}
			return runsOf(cmd.Context(), c, "jobs history", args[0], func(st schedlock.Status, records []schedlock.Record) error {
				runs := withSkipped(records, st.Settings, time.Now())
				if limit > 0 && len(runs) > limit {
					runs = runs[:limit]
				}
				return c.Print(struct {
					output.Form
					Name string     `json:"name"`
					Runs []shownRun `json:"runs"`
				}{output.FormOf("runs"), args[0], runs}, func(t *output.Table) { tableOfRuns(t, runs) })
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 0, "show so many at most; 0 shows all that are stored")
	return cmd
}

func tableOfRuns(t *output.Table, runs []shownRun) {
	t.Row("TICK", "STATE", "ATTEMPT", "OWNER", "START", "TOOK", "ERROR")
	for _, r := range runs {
		switch {
		case r.Skipped != nil && r.Skipped.Count > 1:
			t.Row(output.Instant(r.Tick), fmt.Sprintf("skipped, %d ticks", r.Skipped.Count), "-", "-", "-", "-", r.Error)
		case r.Skipped != nil:
			t.Row(output.Instant(r.Tick), r.State, "-", "-", "-", "-", r.Error)
		default:
			t.Row(output.Instant(r.Tick), stateOf(r), r.Attempt, output.OrDash(r.Owner), output.Instant(r.Start), took(r), output.OrDash(reasonOf(r)))
		}
	}
}

// stateOf returns the state of a run, and whether it was triggered.
func stateOf(r shownRun) string {
	if r.Request != "" {
		return string(r.State) + ", triggered"
	}
	return string(r.State)
}

// took returns how long a run has lasted, "-" if that is not stored.
func took(r shownRun) string {
	switch {
	case r.Took == nil:
		return "-"
	case *r.Took < output.Seconds(time.Millisecond):
		return "<1ms" // times are stored in milliseconds
	}
	return time.Duration(*r.Took).String()
}

// reasonOf returns the error of a run, with the operator who has unlocked it.
func reasonOf(r shownRun) string {
	if r.By == "" {
		return r.Error
	}
	return fmt.Sprintf("%s (unlocked by %s)", output.OrDash(r.Error), r.By)
}

func watch(c *verb.Call) *cobra.Command {
	return &cobra.Command{
		Use:   "watch NAME",
		Short: "Print each run of a job when it starts and when it ends",
		Long: `Print each run of a job when it starts and when it ends, until the command is interrupted; with -o json
as one line for each. Lost runs are not reported, since nothing is written then: see 'jobs history'.
Standard error says when etcd does not answer.`,
		Example: "etcdkit jobs watch -N payments invoices -o json",
		Args:    verb.Arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.Open(cmd.Context(), "jobs watch", &concurrency.SessionOptions{}, func(ctx context.Context, sess *concurrency.Session) error {
				l, err := schedlock.New(sess, nil)
				if err != nil {
					return err
				}
				bounded, cancel := context.WithTimeout(ctx, c.Etcd.Timeout)
				defer cancel()
				if _, err := l.Status(bounded, args[0]); err != nil { // such as a name that is misspelled
					return err
				}
				return c.Following(ctx, sess, func(ctx context.Context) error {
					for r, err := range l.Watch(ctx, args[0]) {
						if err != nil {
							return err
						}
						if err := printRun(c, args[0], showRun(r)); err != nil {
							return err
						}
					}
					return errors.New("the watch has ended")
				})
			})
		},
	}
}

// printRun prints one run of a stream.
func printRun(c *verb.Call, name string, r shownRun) error {
	return c.Print(struct {
		output.Form
		Name string `json:"name"`
		shownRun
	}{output.FormOf("run"), name, r}, func(t *output.Table) {
		line := fmt.Sprintf("%s  %s  attempt %d by %s", output.Instant(r.Tick), stateOf(r), r.Attempt, output.OrDash(r.Owner))
		if !r.End.IsZero() {
			line += ", took " + took(r)
		}
		if text := reasonOf(r); text != "" {
			line += ": " + text
		}
		t.Line(line)
	})
}
