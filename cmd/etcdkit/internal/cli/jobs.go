package cli

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/schedlock"
)

func (a *app) jobs() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "jobs",
		Short: "List scheduled jobs, show their runs, run, pause, resume, unlock, trigger and forget them",
		Long: `List the jobs of package schedlock with their states and their latest runs.

STATE is running, cooling down (AtLeast keeps the job from starting), idle or never run, and paused beside
one of these. NEXT is the next fire time, if the job is not paused: for a job with a period while a process
that uses the job lives; for one of Locker.Job, gocronlock.Cron.Plan or 'etcdkit cron' as its processes have planned it, while
one of them lives; for one of 'etcdkit jobs run', or of gocronlock.NewCron without Plan, as its latest run has planned it.`,
		Example: "etcdkit jobs -N payments\netcdkit jobs -N payments -o json\netcdkit jobs history -N payments invoices",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.open(cmd.Context(), "jobs", &concurrency.SessionOptions{}, a.listJobs)
		},
	}
	cmd.AddCommand(&cobra.Command{Use: "list", Short: "List the jobs, as 'etcdkit jobs' does", Args: arguments(0, 0), RunE: cmd.RunE, Example: "etcdkit jobs list -N payments"})
	cmd.AddCommand(a.jobHistory(), a.jobWatch(), a.jobPause(), a.jobResume(), jobRun(a), a.jobUnlock(), a.jobTrigger(), a.jobForget())
	return cmd
}

// locker runs fn with a Locker on a session.
func (a *app) locker(ctx context.Context, verb string, fn func(context.Context, *schedlock.Locker) error) error {
	return a.session(ctx, verb, func(ctx context.Context, sess *concurrency.Session) error {
		l, err := schedlock.New(sess, nil)
		if err != nil {
			return err
		}
		return fn(ctx, l)
	})
}

// shownJob is a job as JSON.
type shownJob struct {
	schema
	Name        string      `json:"name"`
	Running     bool        `json:"running"`
	Token       number      `json:"token,omitempty"` // of the active run
	CoolingDown bool        `json:"cooling_down"`
	Paused      *shownPause `json:"paused,omitempty"`
	Settings    string      `json:"settings,omitempty"` // of the live processes that use it
	Last        *shownRun   `json:"last,omitempty"`
	Next        time.Time   `json:"next,omitzero"`
}

type shownPause struct {
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since,omitzero"`
}

func showJob(st schedlock.Status, now time.Time) shownJob {
	j := shownJob{schema: schemaOf("job"), Name: st.Job, Running: st.Running, Token: number(st.Token), CoolingDown: st.CoolingDown, Settings: st.Settings, Next: st.NextFire(now)}
	if st.Paused != nil {
		j.Paused = &shownPause{st.Paused.By, st.Paused.Reason, st.Paused.Since.UTC()}
	}
	if st.Last != nil {
		r := showRun(*st.Last)
		j.Last = &r
	}
	return j
}

// state returns the state in words.
func (j shownJob) state() string {
	state := "idle"
	switch {
	case j.Running:
		state = "running"
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

func (a *app) listJobs(ctx context.Context, sess *concurrency.Session) error {
	l, err := schedlock.New(sess, nil)
	if err != nil {
		return err
	}
	ctx, alive, cancel := a.patience(ctx) // there may be many
	defer cancel()
	names, err := l.Jobs(ctx)
	if err != nil {
		return because(ctx, err)
	}
	jobs := make([]shownJob, len(names))
	err = a.readEach(len(names), "jobs", func(i int) error {
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
		return because(ctx, err)
	}
	jobs = slices.DeleteFunc(jobs, func(j shownJob) bool { return j.Name == "" })
	return a.print(struct {
		schema
		Jobs []shownJob `json:"jobs"`
	}{schemaOf("jobs"), jobs}, func(t *table) {
		t.row("JOB", "STATE", "LAST TICK", "OUTCOME", "OWNER", "NEXT", "PAUSED")
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
				paused = j.Paused.By + ": " + or(j.Paused.Reason)
			}
			t.row(j.Name, j.state(), instant(last.Tick), or(string(last.State)), or(last.Owner), instant(j.Next), or(paused))
		}
	})
}

// instant returns a time as text, in UTC; "-" if it is zero.
func instant(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05.999Z07:00")
}
