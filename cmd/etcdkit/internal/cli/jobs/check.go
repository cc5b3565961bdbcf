package jobs

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/schedlock"
)

func check(c *verb.Call) *cobra.Command {
	var within time.Duration
	cmd := &cobra.Command{
		Use:   "check NAME",
		Short: "Exit with 0 if the last run of a job that was due has succeeded",
		Long: `Exit with 0 if the last run of a job that was due has succeeded, and print that run. Otherwise exit with 1 and
the reason: the latest run has failed, was lost or was unlocked, or is still active; a fire time has come, and no
process has started it, or the job was paused; the job has never run. A run that was repeated, since an attempt of it was
lost or has failed, is what its last attempt is.

The fire times are those of the plan that the job's processes or calls have stored, which stays for a week after all of
them have ended; those before the latest pause or resumption do not count. Without a plan, as of Locker.Do without Planned or
after that week, --within is needed. With it the success must be so recent too, and an active run is no failure
if the one before it has succeeded so recently.`,
		Example: "etcdkit jobs check -N payments invoices --within 26h",
		Args:    verb.Arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if within < 0 {
				return exit.Usagef("--within %v is negative", within)
			}
			return runsOf(cmd.Context(), c, "jobs check", args[0], func(st schedlock.Status, records []schedlock.Record) error {
				run, why := succeeded(st, records, st.Missed(time.Now()), within, time.Now())
				if why != "" {
					return exit.Errorf(exit.Failed, "job %s: %s", args[0], why)
				}
				return printRun(c, args[0], showRun(run))
			})
		},
	}
	cmd.Flags().DurationVar(&within, "within", 0, "how long ago the run may have ended, such as 26h for a job of each night; 0 asks for the plan alone")
	return cmd
}

// counts reports whether the record of a run counts at a time: one of a wrong clock whose time has not come would hide the
// runs before it.
func counts(r schedlock.Record, now time.Time) bool {
	return record.RunCounts(r.Tick.UnixMilli(), r.Start.UnixMilli(), now)
}

// succeeded returns the run by which a job is in order, or why it is not. records are its runs, the latest first; missed
// is by when it was to start and has not, or zero.
func succeeded(st schedlock.Status, records []schedlock.Record, missed time.Time, within time.Duration, now time.Time) (run schedlock.Record, why string) {
	records = slices.DeleteFunc(slices.Clone(records), func(r schedlock.Record) bool { return !counts(r, now) })
	switch {
	case len(records) > 0 && records[0].State == schedlock.RunActive:
		recent := len(records) > 1 && records[1].State == schedlock.RunDone && within > 0 && ago(records[1], now) <= within
		if recent {
			return records[1], ""
		}
		r := records[0]
		return run, fmt.Sprintf("the run of tick %s is active since %s: attempt %d by %s", output.Instant(r.Tick),
			output.Instant(r.Start), r.Attempt, output.OrDash(r.Owner))
	case !missed.IsZero():
		latest := "it has never run"
		if len(records) > 0 {
			latest = fmt.Sprintf("the latest run, of tick %s: %s", output.Instant(records[0].Tick), records[0].State)
		}
		return run, fmt.Sprintf("it was due at %s and has not started, %s; %s", output.Instant(missed),
			cmp.Or(st.Obstacle(), "no process has started it"), latest)
	case len(records) == 0:
		return run, "it has never run"
	}
	last := records[0]
	switch ago := ago(last, now); {
	case last.State != schedlock.RunDone:
		why = fmt.Sprintf("the run of tick %s: %s, attempt %d by %s", output.Instant(last.Tick), last.State, last.Attempt, output.OrDash(last.Owner))
		if last.Error != "" { // of a lost run no process has said why
			why += ": " + last.Error
		}
		return run, why
	case within > 0 && ago > within:
		return run, fmt.Sprintf("the latest run, of tick %s: done, but that is %v ago, and --within is %v", output.Instant(last.Tick), ago.Round(time.Second), within)
	case within == 0 && st.Plan == nil:
		return run, "its fire times are not known, since etcd has no plan of it: --within says how long ago the latest run may have ended"
	}
	return last, ""
}

// ago returns how long ago a run has ended. An end that has not come is of a wrong clock: then it is how long ago it began.
func ago(r schedlock.Record, now time.Time) time.Duration {
	if !record.HasCome(r.End.UnixMilli(), now) {
		return now.Sub(r.Start)
	}
	return now.Sub(r.End)
}
