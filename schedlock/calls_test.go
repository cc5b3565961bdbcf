package schedlock_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/schedlock"
	"github.com/etcdkit/etcdkit/schedlock/gocronlock"
)

func berlin(t testing.TB) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	return zone
}

// K2: a daily job at 01:30 under an adapter whose ticks are days in UTC runs once each night, also on the night
// on which the clocks go forward: there two calls come within one day in UTC.
func TestDailyJobWhenTheClocksChange(t *testing.T) {
	t.Parallel()
	zone := berlin(t)
	for way, call := range daily(t) {
		for name, restart := range map[string]bool{"two processes": false, "processes that have just started": true} {
			for _, first := range []time.Time{time.Date(2026, 3, 27, 1, 30, 0, 0, zone), time.Date(2026, 10, 23, 1, 30, 0, 0, zone)} {
				t.Run(way+", "+name+first.Format(", January"), func(t *testing.T) {
					t.Parallel()
					f := shared(t)
					now := clock(first)
					var calls []func()
					var starts atomic.Int64
					for night := range 6 {
						now.set(first.AddDate(0, 0, night))
						if night == 0 || restart {
							calls = []func(){call(f.instance(nil, now.options()), &starts), call(f.instance(nil, now.options()), &starts)}
						}
						for n, c := range calls {
							now.set(first.AddDate(0, 0, night).Add(time.Duration(n) * time.Second))
							c()
						}
						require.EqualValues(t, night+1, starts.Load())
					}
				})
			}
		}
	}
}

// daily makes a caller of a daily job under an adapter whose ticks are days in UTC, by each way.
func daily(t *testing.T) map[string]func(in instance, starts *atomic.Int64) func() {
	const day = 24 * time.Hour
	return map[string]func(in instance, starts *atomic.Int64) func(){
		"gocronlock.New": func(in instance, starts *atomic.Int64) func() {
			g, err := gocronlock.New[gocronLock](in.Locker, day)
			require.NoError(t, err)
			return func() {
				if lock, err := g.Lock(ctxT(t), "job"); err == nil {
					starts.Add(1)
					require.NoError(t, lock.Unlock(ctxT(t)))
				} else {
					require.ErrorIs(t, err, gocronlock.ErrSkipped)
				}
			}
		},
		"Wrap": func(in instance, starts *atomic.Int64) func() {
			only, err := schedlock.Wrap[cronJob](in.Locker, "job", day)
			require.NoError(t, err)
			return only(cronFunc(func() { starts.Add(1) })).Run
		},
	}
}

// A277: a daily job at midnight in UTC. The wall clock of one process was set back, so that its timer is early: within the day
// of its call before. It waits for the next day, and the run counts for that.
func TestDailyJobAfterAClockWasSetBack(t *testing.T) {
	t.Parallel()
	for way, call := range daily(t) {
		for name, alone := range map[string]bool{"alone": true, "beside another one": false} {
			t.Run(way+", "+name, func(t *testing.T) {
				t.Parallel()
				f := shared(t)
				first := time.Date(2026, 5, 4, 0, 0, 0, 0, time.UTC)
				back, right := clock(first), clock(first)
				var starts atomic.Int64
				calls := []func(){call(f.instance(nil, back.options()), &starts), call(f.instance(nil, right.options()), &starts)}
				for night := range 3 {
					at := first.AddDate(0, 0, night)
					back.set(at.Add(-time.Duration(night) * 100 * time.Millisecond))
					right.set(at.Add(time.Millisecond))
					calls[0]()
					if !alone {
						calls[1]()
					}
					require.EqualValues(t, night+1, starts.Load(), "night %d", night)
				}
			})
		}
	}
}

// A277: on the night on which the clocks go forward the only process left is one whose call of the night before was late: the
// job runs.
func TestDailyJobOfALateProcess(t *testing.T) {
	t.Parallel()
	for way, call := range daily(t) {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			night := time.Date(2026, 3, 29, 1, 30, 0, 0, berlin(t))
			now := clock(night)
			var starts atomic.Int64
			dies, lives := call(f.instance(nil, now.options()), &starts), call(f.instance(nil, now.options()), &starts)
			dies()
			now.set(night.Add(25 * time.Minute))
			lives()
			require.EqualValues(t, 1, starts.Load())
			now.set(night.AddDate(0, 0, 1))
			lives()
			require.EqualValues(t, 2, starts.Load())
		})
	}
}

// Timers of an interval of a day, each process in its own phase, run once a day.
func TestDayLongIntervals(t *testing.T) {
	t.Parallel()
	f := shared(t)
	first := time.Date(2026, 3, 27, 0, 0, 0, 0, time.UTC)
	now := clock(first)
	var starts atomic.Int64
	var calls []func()
	for range 3 {
		only, err := schedlock.Wrap[cronJob](f.instance(nil, now.options()).Locker, "job", 24*time.Hour)
		require.NoError(t, err)
		calls = append(calls, only(cronFunc(func() { starts.Add(1) })).Run)
	}
	for day := range 5 {
		for n, phase := range []time.Duration{time.Hour, 9 * time.Hour, 23*time.Hour + 50*time.Minute} {
			now.set(first.AddDate(0, 0, day).Add(phase))
			calls[n]()
		}
		require.EqualValues(t, day+1, starts.Load())
	}
}

// K3: a call that comes a little early waits for its tick, and is not for the one of the day before.
func TestRunALittleEarly(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	now := clock(at)
	in := shared(t).instance(nil, now.options())
	job, err := in.Job("job", nine{}, nothing)
	require.NoError(t, err)
	cron, err := gocronlock.NewCron[gocronLock](in.Locker, anyCron{})
	require.NoError(t, err)
	require.NoError(t, cron.IsValid("", time.UTC, at))
	for day := range 3 {
		now.set(at.AddDate(0, 0, day).Add(-time.Duration(day) * 100 * time.Millisecond))
		begun := time.Now()
		res, err := job.RunContext(ctxT(t))
		require.NoError(t, err)
		require.Equal(t, []any{schedlock.Ran, at.AddDate(0, 0, day)}, []any{res.Outcome, res.Tick})
		require.GreaterOrEqual(t, time.Since(begun), time.Duration(day)*100*time.Millisecond)

		lock, err := cron.Lock(ctxT(t), "gocron's")
		require.NoError(t, err)
		r, _ := cron.Running("gocron's")
		require.Equal(t, at.AddDate(0, 0, day), r.Tick())
		require.NoError(t, lock.Unlock(ctxT(t)))
	}
}

// first fires once.
type first time.Time

func (f first) Next(t time.Time) time.Time {
	if t.Before(time.Time(f)) {
		return time.Time(f)
	}
	return time.Time{}
}

func (first) IsValid(string, *time.Location, time.Time) error { return nil }

// K6: before the first tick of a schedule there is none to run.
func TestRunBeforeTheFirstTick(t *testing.T) {
	t.Parallel()
	f := shared(t)
	at := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	now := clock(at.Add(-time.Minute))
	var starts atomic.Int64
	for range 2 {
		var reported results
		o := now.options()
		o.Done = reported.done
		in := f.instance(nil, o)
		job, err := in.Job("job", first(at), counted(&starts))
		require.NoError(t, err)
		res, err := job.RunContext(ctxT(t))
		require.NoError(t, err)
		require.Equal(t, schedlock.Result{Job: "job", Outcome: schedlock.Late}, res)
		require.Equal(t, []schedlock.Outcome{schedlock.Late}, reported.outcomes())
		cron, err := gocronlock.NewCron[gocronLock](in.Locker, first(at))
		require.NoError(t, err)
		require.NoError(t, cron.IsValid("", time.UTC, now.now()))
		_, err = cron.Lock(ctxT(t), "job")
		require.ErrorIs(t, err, gocronlock.ErrSkipped)
	}
	require.Zero(t, starts.Load())
}

// never has no fire time.
type noTimes struct{}

func (noTimes) Next(time.Time) time.Time                        { return time.Time{} }
func (noTimes) IsValid(string, *time.Location, time.Time) error { return nil }

// K4, K5: what a Job refuses, gocronlock.NewCron refuses when gocron passes the crontab on.
func TestGocronCronRefusesWhatJobRefuses(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	for says, x := range map[string]struct {
		schedule interface {
			schedlock.Schedule
			IsValid(string, *time.Location, time.Time) error
		}
		atLeast time.Duration
	}{
		"AtLeast(24h0m0s) is as long": {anyCron{}, 24 * time.Hour},
		"AtLeast(23h0m0s) is as long": {anyCron{}, 23 * time.Hour},
		"never fires":                 {noTimes{}, 0},
	} {
		var opts []schedlock.Option
		var jobOpts []schedlock.JobOption
		if x.atLeast > 0 {
			opts, jobOpts = append(opts, schedlock.AtLeast(x.atLeast)), append(jobOpts, schedlock.AtLeast(x.atLeast))
		}
		cron, err := gocronlock.NewCron[gocronLock](in.Locker, x.schedule, opts...)
		require.NoError(t, err)
		err = cron.IsValid("0 9 * * *", berlin(t), time.Now())
		require.ErrorIs(t, err, schedlock.ErrInvalid)
		require.ErrorContains(t, err, says)
		_, err = in.Job("job", schedlock.Crontab{Text: "0 9 * * *", Zone: berlin(t), Schedule: x.schedule}, nothing, jobOpts...)
		require.ErrorIs(t, err, schedlock.ErrInvalid)
		require.ErrorContains(t, err, says)
	}
}

// A cron library with a zone of its own reads the schedule otherwise than Job has supposed. That is logged.
func TestOptionsInTheZoneOfTheLibrary(t *testing.T) {
	t.Parallel()
	in, lines := shared(t).logged(nil, clock(time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)).options())
	job, err := in.Job("job", nine{}, nothing, schedlock.AtLeast(23*time.Hour))
	require.NoError(t, err)
	job.Next(time.Now().In(berlin(t)))
	require.Equal(t, 1, lines.FilterMessageSnippet("options of a job skip ticks").Len())
}

// K13: a tick that does not start because a process with a fast clock has claimed a later one is logged once, with
// that process.
func TestClaimsOfAFastClockAreNamed(t *testing.T) {
	t.Parallel()
	f := shared(t)
	at := time.Now().Truncate(time.Second)
	slow, lines := f.logged(nil, nil)
	fast := f.instance(nil, schedlock.WithClock(schedlock.Options{}, 30*time.Second))
	require.Eventually(t, func() bool {
		c := slow.Clocks()
		return len(c) == 1 && c[0].Known
	}, soon, 20*time.Millisecond)
	res, err := fast.Do(ctxT(t), "job", nothing, schedlock.Tick(at.Add(30*time.Second)))
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, res.Outcome)
	for range 2 {
		res, err = slow.Do(ctxT(t), "job", nothing, schedlock.Tick(at))
		require.NoError(t, err)
		require.Equal(t, schedlock.Late, res.Outcome)
	}
	warned := lines.FilterMessageSnippet("a tick of a job was claimed before it came").All()
	require.Len(t, warned, 1)
	require.Contains(t, warned[0].ContextMap()["ahead"].([]any)[0], fast.sess.Owner())
}
