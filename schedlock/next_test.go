package schedlock_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/schedlock"
	"github.com/etcdkit/etcdkit/schedlock/gocronlock"
)

// A log line and a page ask a Job for its fire times, in another zone, for times long ago
// and far ahead. No tick comes of that, and the library's answers do not change.
func TestNextOfOthers(t *testing.T) {
	t.Parallel()
	berlin := time.FixedZone("Berlin", 2*3600)
	at := func(day, hour int) time.Time { return time.Date(2026, 7, day, hour, 0, 0, 0, berlin) }
	for _, policy := range []schedlock.Misfire{schedlock.Skip, schedlock.Once} {
		t.Run([]string{"Skip", "Once"}[policy], func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			now := clock(at(1, 8))
			var ticks []time.Time
			o := now.options()
			var reported results
			o.Done = reported.done
			in := f.instance(nil, o)
			var starts atomic.Int64
			job, err := in.Job("job", nine{}, counted(&starts), schedlock.OnMisfire(policy))
			require.NoError(t, err)
			others := func() {
				for _, zone := range []*time.Location{time.UTC, time.FixedZone("Tokyo", 9*3600)} {
					job.Next(now.now().In(zone))
					job.Next(now.now().AddDate(0, 0, -20).In(zone))
					for next := range 20 {
						job.Next(now.now().AddDate(0, 0, next).In(zone))
					}
				}
			}
			library := func() time.Time { return job.Next(now.now()) }
			next := library()
			require.Equal(t, at(1, 9), next)
			for day := 1; day <= 3; day++ {
				others()
				require.Equal(t, at(day, 9), next)
				now.set(next)
				res, err := job.RunContext(ctx)
				require.NoError(t, err)
				require.Equal(t, []any{schedlock.Ran, at(day, 9).UTC()}, []any{res.Outcome, res.Tick})
				ticks = append(ticks, res.Tick)
				next = library()
				for _, hour := range []int{10, 11, 12} { // nine o'clock in UTC is eleven in Berlin
					now.set(at(day, hour))
					others()
					require.Equal(t, at(day+1, 9), library())
					res, err := job.RunContext(ctx) // by hand
					require.NoError(t, err)
					require.Equal(t, []any{schedlock.Claimed, at(day, 9).UTC()}, []any{res.Outcome, res.Tick})
				}
			}
			require.EqualValues(t, len(ticks), starts.Load())
			h, err := in.History(ctx, "job")
			require.NoError(t, err)
			require.Len(t, h, len(ticks))
		})
	}
}

// Whatever zone the caller asks in, it gets the fire times of the job, in its own zone.
func TestNextInAnotherZone(t *testing.T) {
	t.Parallel()
	berlin := time.FixedZone("Berlin", 2*3600)
	now := clock(time.Date(2026, 7, 1, 8, 0, 0, 0, berlin))
	job, err := shared(t).instance(nil, now.options()).Job("job", nine{}, nothing)
	require.NoError(t, err)
	want := time.Date(2026, 7, 1, 9, 0, 0, 0, berlin)
	require.Equal(t, want, job.Next(now.now()))
	require.Equal(t, want.UTC(), job.Next(now.now().UTC()))
}

// anyCron is a cron of gocron's shape around nine, which takes the zone of its caller.
type anyCron struct{ nine }

func (anyCron) IsValid(string, *time.Location, time.Time) error { return nil }

// gocron says in which zone its cron is read, so a caller that asks first sets no other.
func TestGocronCronInTheZoneOfTheScheduler(t *testing.T) {
	t.Parallel()
	ctx := ctxT(t)
	berlin := time.FixedZone("Berlin", 2*3600)
	now := clock(time.Date(2026, 7, 1, 8, 0, 0, 0, berlin))
	c, err := gocronlock.NewCron[gocronLock](shared(t).instance(nil, now.options()).Locker, anyCron{})
	require.NoError(t, err)
	c.Next(now.now().UTC())
	require.NoError(t, c.IsValid("", berlin, now.now()))
	next := c.Next(now.now())
	c.Next(now.now().UTC())
	require.Equal(t, time.Date(2026, 7, 1, 9, 0, 0, 0, berlin), next)
	for _, hour := range []int{0, 3, 5} {
		now.set(next.Add(time.Duration(hour) * time.Hour))
		lock, err := c.Lock(ctx, "job")
		if hour == 0 {
			require.NoError(t, err)
			r, _ := c.Running("job")
			require.Equal(t, next.UTC(), r.Tick())
			require.NoError(t, lock.Unlock(ctx))
			continue
		}
		var skip *gocronlock.SkippedError
		require.ErrorAs(t, err, &skip)
		require.Equal(t, []any{schedlock.Claimed, next.UTC()}, []any{skip.Result.Outcome, skip.Result.Tick})
	}
}

// Processes in two zones have the same schedule without a zone of its own, so it has two sets of
// fire times. Those of the process that came first count; a process may change its own.
func TestFireTimesAreAgreedOn(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	tokyo := time.FixedZone("Tokyo", 9*3600)
	now := clock(time.Date(2026, 3, 1, 20, 0, 0, 0, time.UTC))
	a, b := f.instance(nil, now.options()), f.instance(nil, now.options())
	var starts atomic.Int64
	jobIn := func(in instance, zone *time.Location) *schedlock.Job {
		job, err := in.Job("daily", nine{}, counted(&starts))
		require.NoError(t, err)
		job.Next(now.now().In(zone))
		return job
	}
	one, two := jobIn(a, tokyo), jobIn(b, time.UTC)
	now.set(time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)) // nine in Tokyo
	res, err := one.RunContext(ctx)
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, res.Outcome)
	now.set(time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC))
	_, err = two.RunContext(ctx)
	var other *schedlock.SettingsError
	require.ErrorAs(t, err, &other)
	require.Contains(t, other.Mine, "T09:00:00Z")
	require.Contains(t, other.Theirs, "T00:00:00Z")
	require.EqualValues(t, 1, starts.Load())

	// Another call without a schedule agrees with any, and a's own new Job takes the place.
	res, err = two.Trigger(ctx)
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, res.Outcome)
	now.set(time.Date(2026, 3, 3, 9, 0, 0, 0, time.UTC))
	res, err = jobIn(a, time.UTC).RunContext(ctx)
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, res.Outcome)
	now.set(time.Date(2026, 3, 4, 9, 0, 0, 0, time.UTC))
	res, err = two.RunContext(ctx)
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, res.Outcome)
}
