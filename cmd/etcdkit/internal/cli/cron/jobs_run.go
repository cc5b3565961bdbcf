package cron

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/guarded"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/crontab"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/observe"
	"github.com/etcdkit/etcdkit/schedlock"
)

// jobRunUsage is what `etcdkit jobs run --help` says of the verb.
const jobRunUsage = `Run a command once for each time at which it is scheduled, though cron or a timer of systemd calls it on
each of several machines. The same line is in the crontab of each:

    30 1 * * *  etcdkit jobs run -N ops backup --cron '30 1 * * *' --zone Europe/Berlin -- /usr/local/bin/backup

The first call claims the tick, and runs the command as 'etcdkit run' does: it is dead before etcd can give the job to
another machine. The other calls are on standby until that run has ended. If its machine dies, or is cut off, one of
them runs the command again if --retries permits that; otherwise they report the loss. So a machine that is down, or
that calls later, changes nothing.

With --every, a call is for a new tick if the latest one is nearly that old: a quarter less, but at most 90 minutes
and, from 2h on, at least 70 minutes, for the night of the change of the clocks. Ticks are the times of the calls. Calls at uneven
distances, as on weekdays or once a month, need --cron: with --every a weekend rings as a call that is missing.
With --cron, the tick is the latest time of the schedule that has come, in --zone; a schedule means what 'etcdkit cron' says: a time that is left out when the clock
is set forward comes at the change, and one that comes twice when it is set back comes the first time, but for a schedule
whose minute or hour begins with *, which follows the clock. Clocks of two machines may differ
by up to a minute, and by less than half of the time between two ticks.

The lock of a job is its own: 'etcdkit run NAME' takes a mutex, and excludes no run of a job of that name. Other commands
exclude the job if both run under one mutex, whose name is another one:

    etcdkit jobs run -N ops backup --cron '30 1 * * *' -- etcdkit run -N ops data -- /usr/local/bin/backup
    etcdkit run -N ops data -- /usr/local/bin/verify

The inner 'etcdkit run' has no --wait: if that passes, the run of the job has failed with 75, and is not repeated.

Exit codes: the command's where it ran, as 'etcdkit run' has them, 76 if the run was lost, 1 if --at-most has ended a command
that then exits with 0. 0 if another machine has run the command for this time, also if it has failed while this call was on
standby: that machine's exit code says that, and nothing is printed without --verbose, so that cron sends no mail. 0 and a line
on standard error if a run by hand has the place of this time, see --now; 75 if that has failed or was lost. 75 and the reason if it was not run: the job is
paused, an earlier run is active, a later tick was claimed, the run of this time had failed before this call, or was lost and
may not be repeated, or the latest run is older than half of the time between two ticks and so is not the one of this call. 69 if etcd has not answered for --wait-for-etcd before the command was started, 77 or 1 if it has refused the call for as
long: cron calls once, so a call waits, and a line on standard error says so; --wait-for-etcd 0s does not wait. If etcd does not answer when the command has ended, the record of that is repeated
until etcd has it, or the lease has ended: up to --ttl.

'etcdkit jobs history' shows the runs, and 'etcdkit jobs pause' keeps the command from running on all machines. All
machines give the same --at-most and --retries. Each has a host name of its own: a call more than a minute after the run of
another machine of that name ends with 75. A run that fails is not repeated, also not by a supervisor: a CronJob of Kubernetes
has backoffLimit: 0 and restartPolicy: Never; in a unit of systemd, SuccessExitStatus=75 lets calls that run nothing succeed.
SIGTERM is passed on to the command: if that exits with 0 then, the run is done. With --now, a call by hand runs the
command at once, as a tick of its own: after a failure, or before the next time. It is not run,
and the exit code is 75, while another run is active or the job is paused. It is a run of the job: a time of --cron
that comes while it is active is not run (75), and one that has come when it begins, but was not called yet, is not run
either: the calls for that report the run by hand as the one that has its place. So --now is for the command of the job. Another command
takes another name, and excludes the job by a mutex, as above: of two commands with one NAME and one schedule only one is run at
each time, and nothing says so. 'etcdkit jobs' shows the next time after the first run: with --every
that of the latest run and the distance. No process of the job lives between two calls, so the alert EtcdkitJobNotStarted, and
not EtcdkitJobGone, rings when no machine calls any more, with --every a quarter of it later, between 70 and 90
minutes from 2h on. It rings for a week, or until 'etcdkit jobs forget'.

The environment of the command has, besides its own, what 'etcdkit run' sets, with job as ETCDKIT_KIND;
ETCDKIT_TICK, and ETCDKIT_ATTEMPT, which is 1 for the first start of a tick. It runs on Linux only.`

// scheduledRun is what `jobs run` is asked for.
type scheduledRun struct {
	guarded.Execution
	every   time.Duration
	cron    string
	zone    string
	atMost  time.Duration
	retries int
	verbose bool
	byHand  bool
	patient time.Duration // see waiting

	away     time.Time // since when etcd does not answer, or zero
	followed time.Time // the tick whose run this process was on standby for last, or zero
	started  bool      // the command
	parsed   crontab.Schedule
	now      func() time.Time
	work     func(ctx context.Context, r *schedlock.Run, env []string, renewed <-chan struct{}) error // runs the command
}

// JobsRun returns the verb run of jobs.
func JobsRun(c *verb.Call) *cobra.Command {
	v := scheduledRun{Execution: guarded.Execution{Call: c, Verb: "jobs run"}, now: wallClock}
	v.work = func(ctx context.Context, r *schedlock.Run, env []string, renewed <-chan struct{}) error {
		return v.Run(ctx, r, env, renewed)
	}
	cmd := &cobra.Command{
		Use:   "run NAME -- COMMAND [ARG...]",
		Short: "Run a command once for each of its times, called by cron or a timer on several machines",
		Long:  jobRunUsage,
		Example: "etcdkit jobs run -N ops report --cron '30 2 * * 1-5' --zone Europe/Berlin --at-most 2h -- ./report.sh\n" +
			"etcdkit jobs run -N ops sweep --every 15m -- /usr/local/bin/sweep",
		Args: verb.Arguments(2, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := v.read(cmd, args); err != nil {
				return err
			}
			return v.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.DurationVar(&v.every, "every", 0, "time between two calls of one machine, from 10s to a year")
	f.StringVar(&v.cron, "cron", "", "the five fields of a crontab at whose times the calls are made")
	f.StringVar(&v.zone, "zone", "UTC", "time zone of --cron, as in Europe/Berlin")
	f.DurationVar(&v.atMost, "at-most", 0, "end the command after so long (default: it may run for as long as it takes)")
	f.IntVar(&v.retries, "retries", 0, "start a tick again so often if its run was lost; the work is done twice then, in part or in whole")
	f.DurationVar(&v.Grace, "grace", 2*time.Second, "time between SIGTERM and SIGKILL")
	f.DurationVar(&v.TTL, "ttl", 0, "how long after its machine has died a run is lost (default: 15s, or what --grace needs)")
	f.DurationVar(&v.patient, "wait-for-etcd", 0, "how long to wait for an etcd that does not answer, or refuses the call for space, a login or a permission (default: half of the time between two ticks, at most 1h; with --now not at all)")
	f.BoolVar(&v.byHand, "now", false, "by hand: run the command at once, whether or not its time of --cron was run")
	f.BoolVarP(&v.verbose, "verbose", "v", false, "print a line also if another machine has run the command")
	f.BoolVar(&v.EndLeft, "end-left", false, "when the command has exited, end what it has left running (default: wait for it)")
	return cmd
}

// wallClock is the clock by which ticks have come. Tests of several machines set it.
var wallClock = time.Now

// mostEvery is the greatest time between two calls, and unbounded the bound of a run that has none.
const (
	mostEvery = 366 * 24 * time.Hour
	unbounded = 3650 * 24 * time.Hour
)

// read takes the arguments, and checks them and the flags.
func (v *scheduledRun) read(cmd *cobra.Command, args []string) error {
	if at := cmd.ArgsLenAtDash(); at != 1 {
		return exit.Usagef("the command follows NAME and --, as in: etcdkit jobs run NAME --every 24h -- COMMAND")
	}
	v.Kind, v.Name, v.Command = "job", args[0], args[1:]
	if v.byHand {
		v.Verb += " --now" // the history has it in the owner of the run
	}
	switch every, cron := cmd.Flags().Changed("every"), cmd.Flags().Changed("cron"); {
	case every == cron:
		return exit.Usagef("either --every or --cron says when the calls are made, as in --every 24h or --cron '30 2 * * *'")
	case every && (v.every < 10*time.Second || v.every > mostEvery):
		return exit.Usagef("--every %v is not from 10s to %v", v.every, mostEvery)
	case every && cmd.Flags().Changed("zone"):
		return exit.Usagef("--zone is of --cron: --every counts from the latest run")
	case every && v.byHand:
		return exit.Usagef("--now is of --cron: with --every a run by hand would take the place of the next one")
	case v.atMost < 0:
		return exit.Usagef("--at-most %v is negative", v.atMost)
	case v.patient < 0:
		return exit.Usagef("--wait-for-etcd %v is negative", v.patient)
	case v.retries < 0:
		return exit.Usagef("--retries %d is negative", v.retries)
	case cron:
		loc, err := time.LoadLocation(v.zone)
		if err != nil || v.zone == "" || v.zone == "Local" {
			return exit.Usagef("--zone %q is no time zone that all machines know, such as Europe/Berlin", v.zone)
		}
		if v.parsed, err = crontab.Parse(v.cron, loc); err != nil {
			return exit.Usagef("--cron: %w", err)
		}
	}
	if !cmd.Flags().Changed("wait-for-etcd") && !v.byHand {
		v.patient = occasion{now: v.now(), every: v.every, cron: v.parsed}.patience()
	}
	_, _, err := v.Times()
	return err
}

// options are those of a claim.
func (v *scheduledRun) options(tick time.Time, apart time.Duration) []schedlock.CallOption {
	atMost := v.atMost
	if atMost == 0 {
		atMost = unbounded
	}
	schedule, late := occasion{every: v.every, cron: v.parsed}.schedule()
	opts := []schedlock.CallOption{schedlock.Tick(tick), schedlock.AtMost(atMost), schedlock.Retries(v.retries),
		schedlock.Planned(schedule, late)}
	if apart > 0 {
		opts = append(opts, schedlock.Apart(apart))
	}
	return opts
}

// run runs the command for the tick that is due, or is on standby for the run of another machine.
func (v *scheduledRun) run(ctx context.Context) error {
	opts, err := v.Begin()
	if err != nil {
		return err
	}
	renewed, hooks := guarded.Renewals()
	opts.Logger, opts.Hooks = warnings(v.Call.Std.Err), []observe.Hooks{hooks}
	// The record of a run's end is written until etcd has it or the lease has ended: the next machine would run again what
	// was done, or report it as lost.
	return v.waiting(ctx, func() error {
		return v.Call.Ending(ctx, opts, opts.TTL, func(ctx context.Context, _ *clientv3.Client, sess *concurrency.Session) error {
			v.answered()
			l, err := schedlock.New(sess, &schedlock.Options{Now: v.now, Lost: losses(&v.Execution)})
			if err != nil {
				return err
			}
			return v.attend(ctx, l, renewed)
		})
	})
}

// mostTurns is how often a call decides anew because another one was faster.
const mostTurns = 5

// attend decides, and claims the tick or is on standby; and decides again if another call was faster, or has taken its claim
// back.
func (v *scheduledRun) attend(ctx context.Context, l *schedlock.Locker, renewed <-chan struct{}) error {
	at := occasion{now: v.now(), every: v.every, cron: v.parsed, host: machineOf(verb.Owner(v.Verb))}
	if v.byHand {
		res, ran, err := v.claim(ctx, l, v.options(at.now, 0), renewed)
		if ran || err != nil {
			return err
		}
		return v.notRun(skippedReason(res))
	}
	reason := ""
	for turn := range mostTurns {
		last, err := v.latest(ctx, l, at.now)
		if err != nil {
			return err
		}
		if turn > 0 && last != nil { // another call was faster
			v.followed = last.Tick
		}
		at.standby = last != nil && v.followed.Equal(last.Tick)
		d := at.decide(last)
		if d.active {
			if last, err = v.expired(ctx, l, *last); errors.Is(err, schedlock.ErrGone) {
				continue
			} else if err != nil {
				return err
			}
			at.standby = true
			d = at.decide(last)
		}
		if !d.start {
			v.sayMissed(ctx, l, d.missed, last)
		}
		switch {
		case d.follow:
			gone, err := v.follow(ctx, l, d.tick, renewed)
			if !gone {
				return err
			}
			reason = ""
			continue
		case !d.start:
			return v.notRun(d.reason)
		case reason != "":
			return v.notRun(reason)
		}
		res, ran, err := v.claim(ctx, l, v.options(d.tick, d.apart), renewed)
		if ran || err != nil {
			return err
		}
		if res.Outcome != schedlock.Claimed { // as the run before, or one for this tick that was claimed a moment ago
			reason = skippedReason(res)
		}
	}
	return v.notRun("other calls were faster, again and again")
}

// sayMissed says that a time of --cron has no run, and which one by hand has its place.
func (v *scheduledRun) sayMissed(ctx context.Context, l *schedlock.Locker, missed time.Time, instead *schedlock.Record) {
	if missed.IsZero() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, v.Call.Etcd.Timeout)
	defer cancel()
	if _, err := l.Get(ctx, v.Name, missed); errors.Is(err, schedlock.ErrGone) {
		v.Say("job %s: no run was started for %s of --cron: a run by hand has its place, of tick %s by %s, begun %s", v.Name,
			output.Instant(missed), output.Instant(instead.Tick), output.OrDash(instead.Owner), output.Instant(instead.Start))
	}
}

// latest returns the latest record of the job whose tick has come by some clock of the fleet, or nil.
func (v *scheduledRun) latest(ctx context.Context, l *schedlock.Locker, now time.Time) (*schedlock.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, v.Call.Etcd.Timeout)
	defer cancel()
	all, err := l.History(ctx, v.Name)
	if err != nil && !errors.Is(err, schedlock.ErrUnknownJob) {
		return nil, err
	}
	for _, r := range all {
		if record.HasCome(r.Tick.UnixMilli(), now) { // whenever it was started: its tick is not to be had
			return &r, nil
		}
	}
	return nil, nil
}

// claim runs the command if it claims the tick. ran is true if the command was started, or was to be; err is the end of
// the verb then.
func (v *scheduledRun) claim(
	ctx context.Context, l *schedlock.Locker, opts []schedlock.CallOption, renewed <-chan struct{},
) (res schedlock.Result, ran bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var ended error
	res, err = l.Do(ctx, v.Name, func(fn context.Context, r *schedlock.Run) error {
		ran, v.started = true, true
		guard := r.Guard()
		env := v.Environment(guard.KeyBytes(), r.Token(), variablesOf(r)...)
		ended = v.work(fn, r, env, renewed)
		if errors.Is(r.Err(), schedlock.ErrLost) {
			cancel() // another machine takes the next attempt
		}
		return recorded(&v.Execution, ended)
	}, opts...)
	if !ran {
		return res, false, err
	}
	if res.Unconfirmed != nil {
		v.Say("%v; this is repeated until etcd has it, or the lease has ended", res.Unconfirmed)
	}
	if errors.Is(err, schedlock.ErrLost) {
		return res, true, v.Over(exit.Lost, err)
	}
	if ended == nil && err != nil { // --at-most has passed, and the command has exited with 0
		return res, true, v.Over(exit.Failed, err)
	}
	return res, true, ended
}

// variablesOf are those of a run, beside the ones of each command under a guard.
func variablesOf(r *schedlock.Run) []string {
	return []string{"ETCDKIT_TICK=" + r.Tick().Format(time.RFC3339Nano), fmt.Sprintf("ETCDKIT_ATTEMPT=%d", r.Attempt())}
}

// bySignal is CutOff.By of a line of a crontab whose processes have got SIGTERM.
const bySignal = "signal"

// byGuard is CutOff.By of a command that its guard has ended at the deadline, without a request of this process, which was slow.
const byGuard = "guard"

// recorded is what the history has of an end of the command. A command of a crontab that was cut off has failed, whatever its
// exit code: many handle SIGTERM, and exit with 0. So has one that its guard has ended.
func recorded(x *guarded.Execution, err error) error {
	if x.Ended && x.End == nil {
		x.End = &guarded.CutOff{By: byGuard}
	}
	var own *exit.Error
	exited := err == nil || errors.As(err, &own) && own.Err == nil
	switch code := exit.CodeOf(err); {
	case !exited:
		return err
	case x.Cut && x.End != nil && x.End.By == "request":
		return fmt.Errorf("ended, as etcdkit %s was stopped: exit code %d", x.Verb, code)
	case x.Cut && x.End != nil && x.End.By == bySignal:
		return fmt.Errorf("ended by SIGTERM: exit code %d", code)
	case x.End != nil && x.End.By == byGuard:
		return fmt.Errorf("the guard ended it: its time was over: exit code %d", code)
	case code != exit.OK:
		return fmt.Errorf("exit code %d", code)
	}
	return nil
}
