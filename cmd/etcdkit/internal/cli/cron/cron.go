// Package cron has the verbs that run a command once for each of its times, on one of several machines: cron, which
// reads a crontab itself, and `jobs run`, which the cron of each machine calls.
package cron

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/guarded"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/crontab"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/guard"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/schedlock"
)

// cronUsage is what `etcdkit cron --help` says of the verb.
const cronUsage = `A crontab means here what it means to cronie 1.7, the cron of Fedora and RHEL, with the exceptions below.

Run the lines of a crontab file in a fleet: the same file is on several machines, each time of a line is started
by one of them, and a machine that is down changes nothing. Each line is a job of package schedlock: 'etcdkit
jobs' lists it with its next time, 'jobs history', 'pause', 'trigger' and the console work as with any job. The command
of a line is dead before etcd can give the job to another machine.

    CRON_TZ=Europe/Berlin
    SHELL=/bin/bash
    # job: backup at-most=2h retries=1
    30 2 * * *  /usr/local/bin/backup --all

Each line has a name, in a comment above it, so that a line that is edited or moved is the same job; other crons
ignore that. A name is one job of the namespace, whatever its command: if two files have a line of one name, with one schedule and the same
options, only one of the two commands is run at each time, and nothing says so. Files of different owners need namespaces of
their own (-N). Options follow the name: at-most=2h ends the command after that time, retries=1 starts a time again so
often if its run was lost, because its machine died or was cut off. late-by=1h bounds how long after its time a line is still
started, also again: when etcd was not available, or the machines were suspended. By default that is half of the shortest time
between two, at most 1h; with retries that and at-most for each, and without at-most until the next time. A run that fails is not repeated, nor one that a stop of
this process has ended: the history has it as failed, also if the command exits with 0.

Fields are numbers, ranges, steps of * or of a range, lists, and names of three letters; 0 and 7 are Sunday; @hourly,
@daily, @midnight, @weekly, @monthly, @yearly and @annually mean the usual fields. If both the day of the month and
the weekday are given, one of them is enough; if either begins with *, also as */2, both must fit. What follows the
first % of a command is its input, each further % is a line end, and a % after a backslash is a %.

When the clock is set forward, a time that is left out fires at the moment of the change, as 02:30 at 03:00; when it is set
back, a time that comes twice fires the first time. Lines whose minute or hour begins with * fire as the clock shows:
hourly lines in both hours. 'etcdkit cron --check FILE' prints the next fire times of each line, and those around the
changes of the clock in the next year.

Other than in cronie: each line needs a CRON_TZ above it, or --zone, since machines may have other zones; the rules
for changes of the clock hold in the zone of the line; two times that are left out by one change fire once together.
Refused with the number of the line: a line without a name, @reboot, a user column with root, seconds, random times (~,
RANDOM_DELAY), MAILTO and MAILFROM with an address, LOGNAME, a variable whose name has other characters than letters, digits
and _, a byte order mark, a step longer than its range (*/90, which cronie takes for hourly) or after a single number (5/15),
a line that never fires (0 0 30 2 *), and all that is not cron's (@every, ?, L, W, #). The accounts of the machine make no
difference; of a word before a path that may be another account's, as in backup /data, --check warns.

Commands run in HOME as the user of this process, with its environment, the variables above the line, and those that
'etcdkit jobs run' sets. Their output is that of this process, which also says, on
standard error, how runs end, which runs of other machines were lost, and warnings. The file is read once. SIGTERM and ^C end the commands with SIGTERM, and after --grace with SIGKILL; the exit code is 0.`

// cronRun is what `cron` is asked for.
type cronRun struct {
	guarded.Execution
	check bool
	zone  string
}

// Cron returns the verb cron.
func Cron(c *verb.Call) *cobra.Command {
	v := cronRun{Execution: guarded.Execution{Call: c, Verb: "cron"}}
	cmd := &cobra.Command{
		Use:     "cron FILE",
		Short:   "Run a crontab file in a fleet: each time of a line on one machine",
		Long:    cronUsage,
		Example: "etcdkit cron --check /etc/etcdkit.crontab\netcdkit cron -N ops /etc/etcdkit.crontab",
		Args:    verb.Arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			jobs, err := v.read(cmd.Context(), args[0], cmd.InOrStdin())
			switch {
			case err != nil && !v.check:
				return exit.Served(cmd.Context(), err)
			case err != nil:
				return err
			case v.check:
				return v.print(jobs, time.Now())
			}
			return exit.Served(cmd.Context(), v.run(cmd.Context(), jobs))
		},
	}
	f := cmd.Flags()
	f.BoolVar(&v.check, "check", false, "print the next fire times of each line, and those around the changes of the clock, and run nothing")
	f.StringVar(&v.zone, "zone", "", "time zone of lines without a CRON_TZ above them, such as UTC or Europe/Berlin")
	f.DurationVar(&v.Grace, "grace", 2*time.Second, "time between SIGTERM and SIGKILL when a command is ended")
	f.DurationVar(&v.TTL, "ttl", 0, "how long after its machine has died a run is lost (default: 15s, or what --grace needs)")
	f.BoolVar(&v.EndLeft, "end-left", false, "when a command has exited, end what it has left running (default: wait for it)")
	return cmd
}

// mostCrontab bounds what is read of a crontab, in bytes.
const mostCrontab = 16 << 20

// read reads the file; "-" is standard input.
func (v *cronRun) read(ctx context.Context, name string, in io.Reader) ([]crontab.Job, error) {
	if _, _, err := v.Times(); err != nil {
		return nil, err
	}
	var zone *time.Location
	if v.zone != "" {
		loc, err := time.LoadLocation(v.zone)
		if err != nil || v.zone == "Local" {
			return nil, exit.Usagef("--zone %q is no time zone that all machines know, such as Europe/Berlin", v.zone)
		}
		zone = loc
	}
	text, err := verb.Input(ctx, name, in, mostCrontab)
	if err != nil {
		return nil, exit.Usagef("the crontab cannot be read: %w", err)
	}
	jobs, problems := crontab.Read(string(text), zone)
	if len(problems) > 0 {
		lines := make([]string, len(problems))
		for i, p := range problems {
			lines[i] = fmt.Sprintf("%s: %s", name, output.Printable(p.String()))
		}
		return nil, exit.AsUsage(errors.New(strings.Join(lines, "\n")))
	}
	if len(jobs) == 0 {
		return nil, exit.Usagef("%s has no line that runs a command", name)
	}
	return jobs, nil
}

// run runs the lines until a signal ends it.
func (v *cronRun) run(ctx context.Context, jobs []crontab.Job) error {
	opts, err := v.Begin()
	if err != nil {
		return err
	}
	opts.Logger = warnings(v.Call.Std.Err)
	// As the end of jobs run: what has just ended is recorded.
	return v.Call.Ending(ctx, opts, opts.TTL, func(ctx context.Context, _ *clientv3.Client, sess *concurrency.Session) error {
		var l *schedlock.Locker
		var err error
		l, err = schedlock.New(sess, &schedlock.Options{Lost: losses(&v.Execution), Done: func(res schedlock.Result, err error) {
			v.report(res, err)
			v.sayUnstarted(ctx, l, jobs, res, time.Now)
		}})
		if err != nil {
			return err
		}
		planned := make([]*schedlock.Job, len(jobs)) // all, before the first may start
		for i, j := range jobs {
			schedule := schedlock.Crontab{Text: j.Schedule.Text(), Zone: j.Schedule.Location(), Schedule: j.Schedule}
			planned[i], err = l.Job(j.Name, schedule, v.command(j), settingsOf(j, opts.TTL)...)
			if err != nil {
				return exit.Usagef("line %d: %w", j.Line, err)
			}
		}
		var lines sync.WaitGroup
		for _, job := range planned {
			lines.Go(func() { keepTime(ctx, job, time.Now) })
		}
		v.Say("%s; 'etcdkit jobs -N %s' shows them", output.Count(len(jobs), "line", "lines"), v.Call.Etcd.Namespace)
		<-ctx.Done()
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), v.Grace+lastRuns)
		defer cancel()
		err = sess.Close(closing) // it requests the runs to stop, and waits for them
		lines.Wait()
		if err != nil {
			v.Say("%v", err)
		}
		return nil
	})
}

// lastRuns is how much longer than --grace the end waits for the commands.
const lastRuns = 5 * time.Second

// ticking is a job with its fire times.
type ticking interface {
	Next(t time.Time) time.Time
	Run()
}

// look is how often the wall clock is read again while a fire time is awaited: a timer counts neither changes of the clock
// nor the time for which a machine is suspended.
const look = time.Minute

// keepTime runs a job at its fire times until ctx has ended, and returns when its runs have. A clock that is set back while a fire
// time is awaited may have an earlier one.
func keepTime(ctx context.Context, job ticking, now func() time.Time) {
	var runs sync.WaitGroup
	defer runs.Wait()
	for next := job.Next(now()); !next.IsZero(); {
		left := next.Sub(now())
		if left <= 0 {
			runs.Go(job.Run)
			next = job.Next(now())
			continue
		}
		if verb.Pause(ctx, min(left, look)) != nil {
			return
		}
		if earlier := job.Next(now()); !earlier.IsZero() && earlier.Before(next) {
			next = earlier
		}
	}
	<-ctx.Done()
}

// command returns the function that runs the command of a line.
func (v *cronRun) command(j crontab.Job) schedlock.Func {
	return func(ctx context.Context, r *schedlock.Run) error {
		x := v.Execution
		x.Kind, x.Name, x.Title = "job", j.Name, j.Name+": "
		in, err := input(j.Input)
		if err != nil {
			return err
		}
		held := r.Guard()
		env := x.Environment(held.KeyBytes(), r.Token(), append(effective(j.Env), variablesOf(r)...)...)
		g, err := guard.StartRemote(guard.Command{
			Args: []string{j.Shell(), "-c", j.Command}, Env: env, Dir: cmp.Or(j.Home(), os.Getenv("HOME")),
			Grace: x.Grace, EndLeft: x.EndLeft,
		}, r.Deadline(), in)
		_ = in.Close()
		if err != nil {
			return err
		}
		renewed, stop := often()
		defer stop()
		ended := x.Supervise(r, g, renewed)
		cutBySignal(&x, r.Err())
		return recorded(&x, ended)
	}
}

// cutBySignal records that SIGTERM has cut off a command which neither this process nor the guard has ended, under a run that is
// not lost: systemd sends SIGTERM to all processes, and this one has not reacted yet.
func cutBySignal(x *guarded.Execution, lost error) {
	if x.Cut && !x.Ended && x.End == nil && lost == nil {
		x.End = &guarded.CutOff{By: bySignal}
	}
}

// input returns the standard input of a command.
func input(text string) (*os.File, error) {
	if text == "" {
		return os.Open(os.DevNull)
	}
	in, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	go func() { // as long as the command reads, or until no process has it any more
		_, _ = io.WriteString(out, text)
		_ = out.Close()
	}()
	return in, nil
}

// effective returns variables without those that later ones replace.
func effective(env []string) (out []string) {
	for i := range env {
		out = append(out, guarded.Without(env[i:i+1], env[i+1:])...)
	}
	return out
}

// often returns a channel that has a value each half second: a deadline that a renewal has moved is passed on then.
func often() (<-chan struct{}, func()) {
	each, quit := make(chan struct{}), make(chan struct{})
	go func() {
		for {
			select {
			case <-time.After(500 * time.Millisecond):
			case <-quit:
				return
			}
			select {
			case each <- struct{}{}:
			case <-quit:
				return
			}
		}
	}()
	return each, func() { close(quit) }
}

// report says how a call for a fire time has ended, if it is news: what another machine has run is not.
func (v *cronRun) report(res schedlock.Result, err error) {
	if text := newsOf(res, err); text != "" {
		v.Say("%s: tick %s: %s", res.Job, output.Instant(res.Tick), text)
	}
}

// newsOf returns what is to be said about the end of a call, or "".
func newsOf(res schedlock.Result, err error) string {
	switch {
	case res.Outcome == schedlock.Ran:
		return "done, took " + res.Took.Round(time.Millisecond).String()
	case err != nil:
		return err.Error()
	case res.Outcome == schedlock.Claimed, res.Outcome == schedlock.Late:
		return ""
	}
	return skippedReason(res)
}
