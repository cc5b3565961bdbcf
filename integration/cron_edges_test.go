package integration

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/jonboulle/clockwork"
	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/schedlock"
	"github.com/etcdkit/etcdkit/schedlock/gocronlock"
)

// The edges of gocron v2.21.2 and robfig/cron v3.0.1 that docs/migration.md has a table of. A test that fails after an
// upgrade is a change of the library's: the table changes with it.

// WithLimitedRuns counts the runs of one process: a fire time that another process has run is not counted. Three processes
// with a limit of one run the task three times, in three periods.
func TestGocronLimitedRuns(t *testing.T) {
	t.Parallel()
	const period = 500 * time.Millisecond
	all := fleet(t, 3, concurrency.SessionOptions{}, schedlock.Options{})
	s := newStarts()
	var scheds []gocron.Scheduler
	for _, in := range all {
		locker, err := gocronlock.New[gocron.Lock](in.Locker, period)
		require.NoError(t, err)
		sched := scheduler(t, gocron.WithDistributedLocker(locker))
		_, err = sched.NewJob(gocron.DurationJob(period), gocron.NewTask(func() {
			if r, ok := locker.Running("limited"); ok {
				s.add(r.Tick())
			}
		}), gocron.WithName("limited"), gocron.WithLimitedRuns(1))
		require.NoError(t, err)
		sched.Start()
		scheds = append(scheds, sched)
	}
	require.Eventually(t, func() bool {
		left := 0
		for _, sched := range scheds {
			left += len(sched.Jobs())
		}
		return left == 0
	}, soon, 10*time.Millisecond, "each process has removed its job")
	require.Len(t, s.counts(), 3)
	s.once(t)
}

// A OneTimeJob whose time is the same in all processes runs once in the fleet; the others leave it out and drop it.
func TestGocronOneTimeJob(t *testing.T) {
	t.Parallel()
	all := fleet(t, 3, concurrency.SessionOptions{}, schedlock.Options{})
	at := time.Now().Truncate(time.Minute).Add(time.Minute)
	if time.Until(at) > 3*time.Second { // not at the end of a period
		at = time.Now().Add(time.Second)
	}
	var ran atomic.Int32
	var scheds []gocron.Scheduler
	for _, in := range all {
		locker, err := gocronlock.New[gocron.Lock](in.Locker, time.Hour)
		require.NoError(t, err)
		sched := scheduler(t, gocron.WithDistributedLocker(locker))
		_, err = sched.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartDateTime(at)), gocron.NewTask(func() { ran.Add(1) }), gocron.WithName("once"))
		require.NoError(t, err)
		sched.Start()
		scheds = append(scheds, sched)
	}
	require.Eventually(t, func() bool {
		h, err := all[0].History(ctxT(t), "once")
		return err == nil && len(h) == 1 && h[0].State == schedlock.RunDone
	}, soon, 10*time.Millisecond)
	require.EqualValues(t, 1, ran.Load())
	for _, sched := range scheds {
		_ = sched.Shutdown()
	}
	require.EqualValues(t, 1, ran.Load())
}

// On processes that do not lead, NextRun of a job stays in the past.
func TestGocronElectorNextRun(t *testing.T) {
	t.Parallel()
	all := fleet(t, 2, concurrency.SessionOptions{}, schedlock.Options{})
	ran := make(chan int, 1000)
	var jobs []gocron.Job
	for i, in := range all {
		el, err := concurrency.NewElection(in.sess, "cron")
		require.NoError(t, err)
		e, err := gocronlock.NewElector(el)
		require.NoError(t, err)
		sched := scheduler(t, gocron.WithDistributedElector(e))
		job, err := sched.NewJob(gocron.DurationJob(100*time.Millisecond), gocron.NewTask(func() { ran <- i }))
		require.NoError(t, err)
		sched.Start()
		jobs = append(jobs, job)
	}
	leads := -1
	for range 10 { // a second after the first run
		select {
		case leads = <-ran:
		case <-time.After(soon):
			require.FailNow(t, "nothing runs")
		}
	}
	next, err := jobs[1-leads].NextRun()
	require.NoError(t, err)
	require.Less(t, next, time.Now().Add(-300*time.Millisecond), "that of the process that does not lead")
	next, err = jobs[leads].NextRun()
	require.NoError(t, err)
	require.Greater(t, next, time.Now().Add(-300*time.Millisecond), "that of the leader")
}

// Fire times around the changes of the clock, by the libraries themselves: of robfig/cron with its schedule, and of gocron
// with a scheduler at a clock of the test's.
func TestCronLibrariesAtChangesOfTheClock(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ zone, spec, from, robfig, gocron string }{
		"02:30 in spring":              {"Europe/Berlin", "30 2 * * *", "2026-03-28 12:00", "30 02:30 CEST, 31 02:30 CEST", "30 02:30 CEST, 31 02:30 CEST"},
		"02:30 in autumn":              {"Europe/Berlin", "30 2 * * *", "2026-10-24 12:00", "25 02:30 CEST, 25 02:30 CET, 26 02:30 CET", "25 02:30 CEST, 26 02:30 CET, 27 02:30 CET"},
		"hourly in autumn":             {"Europe/Berlin", "0 * * * *", "2026-10-25 01:30", "25 02:00 CEST, 25 02:00 CET, 25 03:00 CET", "25 02:00 CEST, 25 03:00 CET, 25 04:00 CET"},
		"each 30 minutes in autumn":    {"Europe/Berlin", "*/30 * * * *", "2026-10-25 01:40", "25 02:00 CEST, 25 02:30 CEST, 25 02:00 CET, 25 02:30 CET", "25 02:00 CEST, 25 02:30 CEST, 25 02:00 CET, 25 02:30 CET"},
		"each second hour in spring":   {"Europe/Berlin", "0 */2 * * *", "2026-03-29 00:30", "29 04:00 CEST, 29 06:00 CEST", "29 04:00 CEST, 29 06:00 CEST"},
		"midnight after half an hour":  {"Australia/Lord_Howe", "0 0 * * *", "2026-04-04 12:00", "05 00:00 +11, 07 00:00 +1030", "05 00:00 +11, 07 00:00 +1030"},
		"midnight where there is none": {"America/Santiago", "0 0 * * *", "2026-09-05 12:00", "07 00:00 -03, 08 00:00 -03", "07 00:00 -03, 08 00:00 -03"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loc, err := time.LoadLocation(c.zone)
			require.NoError(t, err)
			from, err := time.ParseInLocation("2006-01-02 15:04", c.from, loc)
			require.NoError(t, err)
			schedule, err := cron.ParseStandard(c.spec)
			require.NoError(t, err)
			var got []string
			at := from
			for range strings.Split(c.robfig, ", ") {
				at = schedule.Next(at)
				got = append(got, at.Format("02 15:04 MST"))
			}
			require.Equal(t, c.robfig, strings.Join(got, ", "))

			sched := scheduler(t, gocron.WithClock(clockwork.NewFakeClockAt(from)), gocron.WithLocation(loc))
			job, err := sched.NewJob(gocron.CronJob(c.spec, false), gocron.NewTask(func() {}))
			require.NoError(t, err)
			sched.Start()
			runs, err := job.NextRuns(len(strings.Split(c.gocron, ", ")))
			require.NoError(t, err)
			got = nil
			for _, at := range runs {
				got = append(got, at.In(loc).Format("02 15:04 MST"))
			}
			require.Equal(t, c.gocron, strings.Join(got, ", "))
		})
	}
}

// plans has a year of fire times in UTC for lines of crontabs, which `etcdkit cron` is compared with in its own package.
const plans = "../schedlock/crontab/testdata/robfig-utc.txt"

// robfig/cron has the fire times of that file, but for lines that it refuses or takes for something else: those are named
// with the reason.
func TestRobfigPlans(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(plans)
	require.NoError(t, err)
	n := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		spec, want, ok := strings.Cut(strings.TrimSpace(line), "\t")
		require.True(t, ok, line)
		n++
		schedule, err := cron.ParseStandard(spec)
		require.NoError(t, err, spec)
		require.Equal(t, want, plan(schedule, 2026), spec)
	}
	require.Greater(t, n, 25)
	for spec, want := range map[string]string{
		"0 12 */2 * MON": "", "0 12 1 * */2": "", // either is enough
		"0 0 30 2 *":   "",              // never fires
		"*/90 * * * *": "",              // hourly
		"0 0 * * 7":    "above maximum", // 0 alone is Sunday
		"0 3 * * 5-7":  "above maximum",
	} {
		_, err := cron.ParseStandard(spec)
		if want == "" {
			require.NoError(t, err, spec)
		} else {
			require.ErrorContains(t, err, want, spec)
		}
	}
	never, err := cron.ParseStandard("0 0 30 2 *")
	require.NoError(t, err)
	require.True(t, never.Next(time.Now()).IsZero())
	sched := scheduler(t)
	for spec, refused := range map[string]bool{"0 0 30 2 *": true, "0 0 * * 7": true, "*/90 * * * *": false, "0 12 */2 * MON": false} {
		_, err := sched.NewJob(gocron.CronJob(spec, false), gocron.NewTask(func() {}))
		require.Equal(t, refused, err != nil, "gocron: %s: %v", spec, err)
	}
}

// plan returns the number of fire times of a year in UTC, and a digest of them.
func plan(s cron.Schedule, year int) string {
	sum, n := sha256.New(), 0
	end := time.Date(year+1, 1, 1, 0, 0, 0, 0, time.UTC)
	for at := s.Next(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)); !at.IsZero() && at.Before(end); at = s.Next(at) {
		fmt.Fprintln(sum, at.Unix())
		n++
	}
	return fmt.Sprintf("%d\t%s", n, hex.EncodeToString(sum.Sum(nil)[:8]))
}

// B33: gocron removes a job before it reads the crontab of an Update, so one that is refused ends the job. Its plan stays, so
// that the alert for a job that does not start rings. The job can be added again with the same locker, and runs.
func TestGocronUpdateRefused(t *testing.T) {
	t.Parallel()
	in := fleet(t, 1, concurrency.SessionOptions{}, schedlock.Options{})[0]
	daily, err := gocronlock.NewCron[gocron.Lock](in.Locker, gocron.NewDefaultCron(true))
	require.NoError(t, err)
	require.NoError(t, daily.Plan("invoices"))
	sched := scheduler(t)
	sched.Start()
	ran := make(chan struct{}, 100)
	task := gocron.NewTask(func() { ran <- struct{}{} })
	opts := []gocron.JobOption{gocron.WithName("invoices"), gocron.WithCronImplementation(daily), gocron.WithDistributedJobLocker(daily)}
	job, err := sched.NewJob(gocron.CronJob("0 0 9 * * *", true), task, opts...)
	require.NoError(t, err)
	planned := func(text string) {
		t.Helper()
		require.Eventually(t, func() bool {
			st, err := in.Status(ctxT(t), "invoices")
			return err == nil && st.Plan != nil && st.Plan.Text == text && st.Plan.Live
		}, soon, 10*time.Millisecond)
	}
	planned("0 0 9 * * *")

	_, err = sched.Update(job.ID(), gocron.CronJob("0 0 99 * * *", true), task, opts...)
	require.ErrorIs(t, err, gocron.ErrCronJobParse)
	require.Empty(t, sched.Jobs(), "the edge of gocron")
	planned("0 0 9 * * *")

	_, err = sched.NewJob(gocron.CronJob("* * * * * *", true), task, opts...)
	require.NoError(t, err)
	select {
	case <-ran:
	case <-time.After(soon):
		require.FailNow(t, "it does not run")
	}
	planned("* * * * * *")
}
