package schedlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
	"github.com/etcdkit/etcdkit/schedlock/gocronlock"
)

// N5: what a function returns is printed once by the error of its run, also if it is what has
// ended the run's ctx.
func TestErrorsArePrintedOnce(t *testing.T) {
	t.Parallel()
	own := errors.New("the function's own")
	for name, end := range map[string]func(t *testing.T, f fixture, in instance){
		"lease lost": func(t *testing.T, f fixture, in instance) {
			require.NoError(t, f.RevokeLease(ctxT(t), in.sess.Lease()))
		},
		"unlocked":               func(t *testing.T, f fixture, in instance) { require.NoError(t, in.Unlock(ctxT(t), "job", "why")) },
		"too long":               func(*testing.T, fixture, instance) {},
		"too long, and released": func(t *testing.T, f fixture, in instance) { f.NoKeys("/lock") },
		"lock deleted": func(t *testing.T, f fixture, in instance) {
			_, err := f.Client().Delete(ctxT(t), f.Keys("/lock")[0])
			require.NoError(t, err)
		},
		"closed": func(t *testing.T, f fixture, in instance) {
			ctx, cancel := context.WithCancel(ctxT(t))
			cancel()
			go func() { _ = in.sess.Close(ctx) }()
		},
		"cut off":    func(t *testing.T, f fixture, in instance) { in.client.Cut() },
		"not at all": nil,
	} {
		for how, result := range map[string]func(context.Context) error{
			"the cause":         context.Cause,
			"the cause wrapped": func(ctx context.Context) error { return fmt.Errorf("step 2: %w", context.Cause(ctx)) },
			"its own":           func(context.Context) error { return own },
			"nothing":           func(context.Context) error { return nil },
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				waits := end != nil && name != "cut off"
				if !waits && how != "its own" {
					t.Skip("nothing has ended the ctx")
				}
				f := shared(t)
				so := patient()
				so.Margin = 50 * time.Millisecond
				in := f.instance(so, nil)
				atMost := time.Hour
				if strings.HasPrefix(name, "too long") {
					atMost = 50 * time.Millisecond
				}
				job, err := in.Job("job", grid(24*time.Hour), func(ctx context.Context, _ *schedlock.Run) error {
					if end != nil {
						end(t, f, in)
					}
					if waits {
						closed(t, ctx.Done(), "its ctx ends")
					}
					return result(ctx)
				}, schedlock.AtMost(atMost), schedlock.Retries(1))
				require.NoError(t, err)
				_, err = job.RunContext(ctxT(t))
				testkit.PrintedOnce(t, err)
				if name == "closed" {
					require.NotContains(t, err.Error(), "context canceled", "the caller's ctx has not ended")
				}
				if err != nil {
					require.LessOrEqual(t, strings.Count(err.Error(), own.Error()), 1, err)
				}
				in.client.Heal()
			})
		}
	}
}

// N5: an error that denies permission names the prefix and the permission that the role needs.
func TestDeniedNamesThePrefix(t *testing.T) {
	t.Parallel()
	f := own(t)
	ctx := ctxT(t)
	root := f.instance(nil, nil).sess.NamespacePrefix()
	l, err := schedlock.New(f.SessionOn(f.PresenceOnly(root), nil), nil)
	require.NoError(t, err)
	testkit.Denied(t, root, map[string]func() error{
		"Do":      func() error { _, err := l.Do(ctx, "job", nothing, schedlock.Tick(tick(1))); return err },
		"AtLeast": func() error { _, err := l.Do(ctx, "job2", nothing, schedlock.AtLeast(time.Second)); return err },
		"History": func() error { _, err := l.History(ctx, "job"); return err },
		"Get":     func() error { _, err := l.Get(ctx, "job", tick(1)); return err },
		"Status":  func() error { _, err := l.Status(ctx, "job"); return err },
		"Jobs":    func() error { _, err := l.Jobs(ctx); return err },
		"Pause":   func() error { return l.Pause(ctx, "job", "") },
		"Resume":  func() error { return l.Resume(ctx, "job") },
		"Unlock":  func() error { return l.Unlock(ctx, "job", "") },
	})
}

// N5: the texts of errors: the process and the reason only where they are known.
func TestTexts(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	skipped := func(res schedlock.Result) error {
		res.Job, res.Tick = "sweep", at
		return &gocronlock.SkippedError{Result: res}
	}
	const job = `job "sweep", tick 2026-03-01T12:00:00Z`
	for want, err := range map[string]error{
		job + ": paused":                         skipped(schedlock.Result{Outcome: schedlock.Paused, Paused: &schedlock.Pause{}}),
		job + ": paused by ops":                  skipped(schedlock.Result{Outcome: schedlock.Paused, Paused: &schedlock.Pause{By: "ops"}}),
		job + ": paused by ops: a deploy":        skipped(schedlock.Result{Outcome: schedlock.Paused, Paused: &schedlock.Pause{By: "ops", Reason: "a deploy"}}),
		job + ": paused: a deploy":               skipped(schedlock.Result{Outcome: schedlock.Paused, Paused: &schedlock.Pause{Reason: "a deploy"}}),
		job + ": late":                           skipped(schedlock.Result{Outcome: schedlock.Late}),
		job + ": still running, by pod-1":        skipped(schedlock.Result{Outcome: schedlock.StillRunning, Owner: "pod-1"}),
		job + ", attempt 1: job was unlocked":    &schedlock.LostError{Job: "sweep", Tick: at, Attempt: 1, Cause: schedlock.ErrUnlocked},
		job + ", attempt 1: run is lost: by ops": &schedlock.LostError{Job: "sweep", Tick: at, Attempt: 1, Cause: schedlock.ErrLost, Reason: "by ops"},
		"record the end of " + job + ", attempt 1: etcd has not confirmed it: session or its etcd client is closed": &schedlock.UnconfirmedError{Job: "sweep", Tick: at, Attempt: 1, Cause: schedlock.ErrClosed},
		`job "sweep" is in use with other settings: here AtMost 1s; there AtMost 1h`:                                &schedlock.SettingsError{Job: "sweep", Mine: "AtMost 1s", Theirs: "AtMost 1h"},
	} {
		require.EqualError(t, err, want)
		for sentinel, is := range map[error]bool{
			gocronlock.ErrSkipped:      errors.As(err, new(*gocronlock.SkippedError)),
			schedlock.ErrSettings:      errors.As(err, new(*schedlock.SettingsError)),
			concurrency.ErrLost:        errors.As(err, new(*schedlock.LostError)),
			concurrency.ErrUnconfirmed: errors.As(err, new(*schedlock.UnconfirmedError)),
			schedlock.ErrInvalid:       false,
		} {
			require.Equal(t, is, errors.Is(err, sentinel), "%v, %v", err, sentinel)
		}
	}
}

// N5: an error begins with what was attempted and the name, and then has the reason.
func TestErrorsNameTheAttempt(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	ctx := ctxT(t)
	do := func(name string, opts ...schedlock.CallOption) error {
		_, err := in.Do(ctx, name, nothing, opts...)
		return err
	}
	only := func(_ any, err error) error { return err }
	_, zero := schedlock.New(&concurrency.Session{}, nil)
	require.EqualError(t, zero, "new locker: the session is nil")
	require.ErrorIs(t, zero, schedlock.ErrInvalid)
	for want, err := range map[string]error{
		"new locker: the session is nil":                                           only(schedlock.New(nil, nil)),
		"new locker: Options.Keep -1 is not between 1 and 1000":                    only(schedlock.New(in.sess, &schedlock.Options{Keep: -1})),
		`run job "": the name of the job is empty, but needs 1 to 255 bytes`:       do(""),
		`run job "x": AtMost(0s) is below a millisecond`:                           do("x", schedlock.AtMost(0)),
		`run job "x": the function is nil`:                                         only(in.Do(ctx, "x", nil)),
		`new job "x": the schedule is nil`:                                         only(in.Job("x", nil, nothing)),
		`new job "x": the period -1ns is below a millisecond`:                      only(in.Job("x", schedlock.Periods(-1), nothing)),
		`wrap job "x": the period 0s is below a millisecond`:                       only(schedlock.Wrap[cronJob](in.Locker, "x", 0)),
		"new locker for gocron: the period 0s is below a millisecond":              only(gocronlock.New[gocronLock](in.Locker, 0)),
		"new cron for gocron: the cron is nil":                                     only(gocronlock.NewCron[gocronLock](in.Locker, nil)),
		"new adapter: the schedule is nil":                                         only(schedlock.NewAdapter(in.Locker, nil)),
		"new adapter: the Locker is nil":                                           only(schedlock.NewAdapter(nil, schedlock.Periods(time.Hour))),
		"new locker for gocron: the Locker is nil":                                 only(gocronlock.New[gocronLock](nil, time.Hour)),
		"new cron for gocron: the Locker is nil":                                   only(gocronlock.NewCron[gocronLock](nil, nil)),
		`wrap job "x": the Locker is nil`:                                          only(schedlock.Wrap[cronJob](nil, "x", time.Hour)),
		`new job "x": Crontab.Schedule is nil`:                                     only(in.Job("x", schedlock.Crontab{Text: "0 9 * * *"}, nothing)),
		`run job "x": Planned: Crontab.Schedule is nil`:                            do("x", schedlock.Planned(schedlock.Crontab{Text: "0 9 * * *"}, 0)),
		"new elector for gocron: the election is nil":                              only(gocronlock.NewElector(nil)),
		`read history of job "x": no such job`:                                     only(in.History(ctx, "x")),
		`read status of job "x": no such job`:                                      only(in.Status(ctx, "x")),
		`get record of job "x", tick 2026-03-01T12:00:00Z: no record of this tick`: only(in.Get(ctx, "x", time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))),
		`pause job "x": no such job (if the name is right, pass BeforeFirstRun)`:   in.Pause(ctx, "x", ""),
		`resume job "x": no such job`:                                              in.Resume(ctx, "x"),
		`unlock job "x": no such job`:                                              in.Unlock(ctx, "x", ""),
	} {
		require.EqualError(t, err, want)
	}
}

// The error of a run that lasted too long has the job, the tick and the bound; a nil option its place.
func TestTextsOfBoundsAndNilOptions(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	ctx := ctxT(t)
	wait := func(ctx context.Context, _ *schedlock.Run) error { <-ctx.Done(); return context.Cause(ctx) }
	_, late := in.Do(ctx, "x", wait, schedlock.Tick(anHourAgo), schedlock.AtMost(10*time.Millisecond))
	at := anHourAgo.UTC().Format(time.RFC3339)
	_, call := in.Do(ctx, "x", nothing, schedlock.AtMost(time.Second), nil)
	_, job := in.Job("x", grid(time.Hour), nothing, nil)
	for want, err := range map[string]error{
		`job "x", tick ` + at + `: job ran too long: AtMost of 10ms has passed`: late,
		`run job "x": Option 2 is nil`:                                          call,
		`new job "x": Option 1 is nil`:                                          job,
		`pause job "x": Option 1 is nil`:                                        in.Pause(ctx, "x", "", nil),
	} {
		require.EqualError(t, err, want)
	}
}
