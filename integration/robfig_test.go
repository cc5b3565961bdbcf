package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/schedlock"
)

var (
	_ cron.Job                                = (*schedlock.Job)(nil)
	_ cron.Schedule                           = (*schedlock.Job)(nil)
	_ func(*schedlock.Locker) cron.JobWrapper = func(l *schedlock.Locker) cron.JobWrapper {
		w, _ := schedlock.Wrap[cron.Job](l, "job", time.Minute)
		return w
	}
)

var seconds = cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

func parse(t testing.TB, spec string) cron.Schedule {
	t.Helper()
	s, err := seconds.Parse(spec)
	require.NoError(t, err)
	return s
}

// run starts a cron of robfig's, and stops it when the test ends.
func run(t testing.TB, c *cron.Cron) {
	c.Start()
	t.Cleanup(func() { <-c.Stop().Done() })
}

// Several processes under robfig/cron: each fire time starts once, whole fleet. One of them
// stops and starts in between and one leaves fire times out.
func TestRobfigJob(t *testing.T) {
	t.Parallel()
	all := fleet(t, 5, concurrency.SessionOptions{}, schedlock.Options{})
	s := newStarts()
	for i, in := range all {
		job, err := in.Job("zero", parse(t, "* * * * * *"), func(_ context.Context, r *schedlock.Run) error {
			s.add(r.Tick())
			return nil
		})
		require.NoError(t, err)
		var opts []cron.Option
		if i == 0 {
			opts = append(opts, cron.WithChain(cron.SkipIfStillRunning(cron.DiscardLogger)))
		}
		c := cron.New(opts...)
		c.Schedule(job, job)
		run(t, c)
		if i == 1 {
			go func() {
				s.wait(t, 2)
				<-c.Stop().Done()
				time.Sleep(1500 * time.Millisecond) // past a fire time
				c.Start()
			}()
		}
	}
	s.wait(t, 5)
	s.once(t)
	counts := s.counts()
	var first, last time.Time
	for tick := range counts {
		require.Zero(t, tick.Nanosecond(), "a tick is a fire time of the schedule")
		if first.IsZero() || tick.Before(first) {
			first = tick
		}
		if tick.After(last) {
			last = tick
		}
	}
	t.Logf("%d of %d fire times started", len(counts), int(last.Sub(first)/time.Second)+1)
}

// J24: summer time, as robfig/cron has it: a day without 02:30, and one with two of them.
// Each instant that it returns is a tick, and starts once.
func TestRobfigSummerTime(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	for name, x := range map[string]struct {
		spec string
		zone *time.Location // of cron.WithLocation
		from time.Time
		want []string
	}{
		"gap":                       {"CRON_TZ=Europe/Berlin 0 30 2 * * *", time.UTC, time.Date(2026, 3, 28, 0, 0, 0, 0, berlin), []string{"2026-03-28T01:30:00Z", "2026-03-30T00:30:00Z", "2026-03-31T00:30:00Z"}},
		"overlap":                   {"CRON_TZ=Europe/Berlin 0 30 2 * * *", time.UTC, time.Date(2026, 10, 24, 0, 0, 0, 0, berlin), []string{"2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"}},
		"overlap, zone of the cron": {"0 30 2 * * *", berlin, time.Date(2026, 10, 24, 0, 0, 0, 0, berlin), []string{"2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := ctxT(t)
			now := clock(x.from)
			all := fleet(t, 3, concurrency.SessionOptions{}, schedlock.Options{Now: now.now})
			s := newStarts()
			var jobs []*schedlock.Job
			for _, in := range all {
				job, err := in.Job("daily", parse(t, x.spec), func(_ context.Context, r *schedlock.Run) error {
					s.add(r.Tick())
					return nil
				})
				require.NoError(t, err)
				jobs = append(jobs, job)
			}
			var ticks []string
			for range x.want { // robfig's loop, at a clock of ours
				next := jobs[0].Next(now.now().In(x.zone))
				for _, j := range jobs[1:] {
					require.Equal(t, next, j.Next(now.now().In(x.zone)))
				}
				now.set(next)
				ticks = append(ticks, next.UTC().Format(time.RFC3339))
				for _, j := range jobs {
					res, err := j.RunContext(ctx)
					require.NoError(t, err)
					require.True(t, res.Tick.Equal(next), "%v, want %v", res.Tick, next)
				}
			}
			require.Equal(t, x.want, ticks)
			require.Len(t, s.counts(), len(x.want))
			s.once(t)
		})
	}
}

// J24: ticks that were missed are looked for in the zone of the cron, which the schedule has
// not.
func TestRobfigMisfireInTheZoneOfTheCron(t *testing.T) {
	t.Parallel()
	ctx := ctxT(t)
	tokyo := time.FixedZone("Tokyo", 9*3600)
	now := clock(time.Date(2026, 3, 1, 12, 0, 0, 0, tokyo))
	all := fleet(t, 2, concurrency.SessionOptions{}, schedlock.Options{Now: now.now})
	s := newStarts()
	job := func(in instance) *schedlock.Job {
		j, err := in.Job("daily", parse(t, "0 0 9 * * *"), func(_ context.Context, r *schedlock.Run) error {
			s.add(r.Tick())
			return nil
		}, schedlock.OnMisfire(schedlock.Once))
		require.NoError(t, err)
		return j
	}
	first := job(all[0])
	now.set(first.Next(now.now())) // 2 March, nine o'clock in Tokyo
	res, err := first.RunContext(ctx)
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, res.Outcome)

	now.set(now.now().AddDate(0, 0, 3).Add(time.Hour)) // no process was alive for three days
	require.True(t, job(all[1]).Next(now.now()).Equal(time.Date(2026, 3, 6, 9, 0, 0, 0, tokyo)))
	s.wait(t, 2)
	require.Equal(t, map[time.Time]int{
		time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC): 1,
		time.Date(2026, 3, 5, 0, 0, 0, 0, time.UTC): 1,
	}, s.counts())
}

// A log line and a page ask the Job, and the entry of the cron, in UTC, for a schedule that is
// read in the zone of the cron: they get the same fire times, and no tick comes of it.
func TestRobfigNextOfOthers(t *testing.T) {
	t.Parallel()
	tokyo := time.FixedZone("Tokyo", 9*3600)
	hour := time.Now().In(tokyo).Hour()
	all := fleet(t, 2, concurrency.SessionOptions{}, schedlock.Options{})
	s := newStarts()
	var crons []*cron.Cron
	for _, in := range all {
		job, err := in.Job("job", parse(t, fmt.Sprintf("* * %d,%d * * *", hour, (hour+1)%24)), func(_ context.Context, r *schedlock.Run) error {
			s.add(r.Tick())
			return nil
		}, schedlock.OnMisfire(schedlock.Once))
		require.NoError(t, err)
		c := cron.New(cron.WithLocation(tokyo))
		c.Schedule(job, job)
		run(t, c)
		crons = append(crons, c)
	}
	for _, c := range crons {
		require.Eventually(t, func() bool {
			e := c.Entries()[0]
			if e.Prev.IsZero() {
				return false
			}
			next := e.Schedule.Next(e.Prev.UTC())
			e.Job.Run() // by hand
			return next.Equal(e.Next)
		}, soon, 100*time.Millisecond)
	}
	begun := time.Now()
	s.wait(t, 3)
	s.once(t)
	for tick := range s.counts() {
		require.WithinDuration(t, begun, tick, time.Minute)
		require.Zero(t, tick.Nanosecond())
	}
}

// robfig's @every has no fire times that processes could agree on: a Job refuses it. With Periods
// in its place, and with Wrap, each period starts once.
func TestRobfigEvery(t *testing.T) {
	t.Parallel()
	all := fleet(t, 4, concurrency.SessionOptions{}, schedlock.Options{})
	jobs, wrapped := newStarts(), newStarts()
	for i, in := range all {
		_, err := in.Job("job", parse(t, "@every 2s"), func(context.Context, *schedlock.Run) error { return nil })
		require.ErrorIs(t, err, schedlock.ErrInvalid)
		fn := func(_ context.Context, r *schedlock.Run) error { jobs.add(r.Tick()); return nil }
		job, err := in.Job("job", schedlock.Periods(2*time.Second), fn)
		require.NoError(t, err)
		only, err := schedlock.Wrap[cron.Job](in.Locker, "wrapped", 2*time.Second)
		require.NoError(t, err)
		time.Sleep(time.Duration(i) * 600 * time.Millisecond) // other phases
		c := cron.New()
		c.Schedule(job, job)
		_, err = c.AddJob("@every 2s", cron.NewChain(cron.Recover(cron.DiscardLogger), only).Then(cron.FuncJob(func() {
			wrapped.add(time.Now().Add(50 * time.Millisecond).Truncate(2 * time.Second))
		})))
		require.NoError(t, err)
		run(t, c)
	}
	jobs.wait(t, 3)
	wrapped.wait(t, 3)
	jobs.once(t)
	for _, in := range all {
		seen := map[time.Time]int{}
		for _, res := range in.calls.results() {
			if res.Job == "wrapped" && res.Outcome.Started() {
				seen[res.Tick]++
			}
		}
		for tick, n := range seen {
			require.Equal(t, 1, n, tick)
		}
	}
}

// robfig rounds @every 1s, and what is below it, to whole seconds: the same fire times in all
// processes, so a Job takes it.
func TestRobfigEverySecond(t *testing.T) {
	t.Parallel()
	all := fleet(t, 2, concurrency.SessionOptions{}, schedlock.Options{})
	s := newStarts()
	for _, in := range all {
		job, err := in.Job("job", parse(t, "@every 1s"), func(_ context.Context, r *schedlock.Run) error {
			s.add(r.Tick())
			return nil
		})
		require.NoError(t, err)
		c := cron.New()
		c.Schedule(job, job)
		run(t, c)
	}
	s.wait(t, 3)
	s.once(t)
}

// Shutdown during a run: robfig's Stop waits for the run, whose end is recorded; closing the
// session waits for it, too.
func TestRobfigShutdown(t *testing.T) {
	t.Parallel()
	ctx := ctxT(t)
	all := fleet(t, 2, concurrency.SessionOptions{}, schedlock.Options{})
	begun, end := make(chan struct{}), make(chan struct{})
	job, err := all[0].Job("long", parse(t, "* * * * * *"), func(context.Context, *schedlock.Run) error {
		select {
		case begun <- struct{}{}:
			<-end
		default:
		}
		return nil
	})
	require.NoError(t, err)
	c := cron.New()
	c.Schedule(job, job)
	c.Start()
	select {
	case <-begun:
	case <-time.After(soon):
		require.FailNow(t, "it does not start")
	}
	stopped := c.Stop()
	closed := make(chan error, 1)
	go func() { closed <- all[0].sess.Close(ctx) }()
	select {
	case <-stopped.Done():
		require.Fail(t, "Stop has not waited")
	case <-closed:
		require.Fail(t, "Close has not waited")
	case <-time.After(100 * time.Millisecond):
	}
	close(end)
	<-stopped.Done()
	require.NoError(t, <-closed)
	h, err := all[1].History(ctx, "long")
	require.NoError(t, err)
	require.NotEmpty(t, h)
	for _, r := range h {
		require.Equal(t, schedlock.RunDone, r.State)
	}
}

// S6: a graceful drain. A run learns by Run.StopRequested that Close of its session has begun, and ends
// by itself; Close is called before the wait for robfig's own end.
func TestRobfigDrain(t *testing.T) {
	t.Parallel()
	ctx := ctxT(t)
	all := fleet(t, 2, concurrency.SessionOptions{}, schedlock.Options{})
	begun := make(chan struct{}, 100)
	job, err := all[0].Job("long", parse(t, "* * * * * *"), func(ctx context.Context, r *schedlock.Run) error {
		begun <- struct{}{}
		select {
		case <-r.StopRequested().Done():
			return ctx.Err() // nil: it is asked, not interrupted
		case <-time.After(soon):
			return errors.New("not asked")
		}
	})
	require.NoError(t, err)
	c := cron.New()
	c.Schedule(job, job)
	c.Start()
	select {
	case <-begun:
	case <-time.After(soon):
		require.FailNow(t, "it does not start")
	}
	stopped := c.Stop()
	require.NoError(t, all[0].sess.Close(ctx))
	<-stopped.Done()
	h, err := all[1].History(ctx, "long")
	require.NoError(t, err)
	require.NotEmpty(t, h)
	require.Equal(t, schedlock.RunDone, h[0].State)
}

// A Job is accepted or refused for its schedule and its options, at each time of the year, in zones whose
// clocks change by an hour, by half an hour, and four times a year.
func TestRobfigJobAtAnyTimeOfTheYear(t *testing.T) {
	t.Parallel()
	lk := fleet(t, 1, concurrency.SessionOptions{}, schedlock.Options{})[0]
	for spec, x := range map[string]struct {
		atLeast time.Duration
		refused string
	}{
		"CRON_TZ=Europe/Berlin 0 9 * * *":        {23 * time.Hour, "23h0m0s, after 2024-03-30"},
		"CRON_TZ=Europe/Berlin 1 9 * * *":        {22 * time.Hour, ""},
		"CRON_TZ=Europe/Berlin 0 9,17 * * *":     {8 * time.Hour, "8h0m0s"},
		"CRON_TZ=Europe/Berlin 1 9,17 * * *":     {7 * time.Hour, ""},
		"CRON_TZ=Europe/Berlin 0 9 * * 1-5":      {24 * time.Hour, "24h0m0s"},
		"CRON_TZ=Europe/Berlin 0 0 1 * *":        {28 * 24 * time.Hour, "672h0m0s"},
		"CRON_TZ=Australia/Lord_Howe 0 9 * * *":  {0, ""},
		"CRON_TZ=Australia/Lord_Howe 0 0 * * *":  {0, ""},
		"CRON_TZ=Australia/Lord_Howe 30 2 * * *": {0, ""},
		"CRON_TZ=Africa/Casablanca 0 3 * * *":    {0, ""},
		"CRON_TZ=America/New_York 0 0 29 2 *":    {0, ""},
		"0 0 31 4 *":                             {0, "never fires"},
		"@every 90m":                             {0, "counts from the time"},
	} {
		schedule, err := cron.ParseStandard(spec)
		require.NoError(t, err)
		var opts []schedlock.JobOption
		if x.atLeast > 0 {
			opts = append(opts, schedlock.AtLeast(x.atLeast))
		}
		_, err = lk.Job(spec, schedule, func(context.Context, *schedlock.Run) error { return nil }, opts...)
		if x.refused == "" {
			require.NoError(t, err, spec)
		} else {
			require.ErrorIs(t, err, schedlock.ErrInvalid, spec)
			require.ErrorContains(t, err, x.refused)
		}
	}
}
