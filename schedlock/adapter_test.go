package schedlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/schedlock"
)

// B31: an adapter of a scheduler that locks a job starts each tick in one process, and records how the
// scheduler's task has ended, without gocron or a type of it (B31 in internal/proof/tested-failures.md).
func TestAdapter(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		schedule schedlock.Schedule
		tick     time.Time
	}{
		"periods":  {schedlock.Periods(24 * time.Hour), midnight},
		"schedule": {grid(24 * time.Hour), midnight},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			now := clock(midnight.Add(time.Minute))
			var reported results
			o := now.options()
			o.Done = reported.done
			a, b := f.instance(nil, o), f.instance(nil, now.options())
			var both [2]*schedlock.Adapter
			for i, in := range []instance{a, b} {
				ad, err := schedlock.NewAdapter(in.Locker, tt.schedule)
				require.NoError(t, err)
				require.Equal(t, now.now(), ad.Now())
				if name == "schedule" {
					_, _, err := ad.Start(ctx, "job")
					require.ErrorIs(t, err, schedlock.ErrInvalid, "its fire times are not known")
					require.NoError(t, ad.SetCrontab("daily", time.UTC, now.now()))
					require.True(t, midnight.AddDate(0, 0, 1).Equal(ad.Next(now.now())))
				}
				both[i] = ad
			}
			started, _, err := both[0].Start(ctx, "job")
			require.NoError(t, err)
			require.Equal(t, tt.tick, started.Run().Tick())
			require.NoError(t, started.Run().Check(ctx))
			none, res, err := both[1].Start(ctx, "job")
			require.NoError(t, err)
			require.Nil(t, none)
			require.Equal(t, []any{schedlock.Claimed, tt.tick}, []any{res.Outcome, res.Tick})

			oops := errors.New("oops")
			require.ErrorIs(t, started.End(ctx, oops), oops)
			require.ErrorIs(t, started.End(ctx, nil), oops, "it has ended")
			h, err := b.History(ctx, "job")
			require.NoError(t, err)
			require.Equal(t, []any{schedlock.RunFailed, "oops"}, []any{h[0].State, h[0].Error})
			require.Contains(t, reported.outcomes(), schedlock.Failed)
			f.NoKeys("/lock")
		})
	}
}

// B31: the run does not end with the ctx of Start, which a scheduler may end before its task has. A call
// whose ctx ends before the start starts nothing.
func TestAdapterStartIsBoundAlone(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	ad, err := schedlock.NewAdapter(in.Locker, schedlock.Periods(time.Hour))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(ctxT(t))
	started, _, err := ad.Start(ctx, "job")
	require.NoError(t, err)
	cancel()
	require.NoError(t, started.Run().Check(ctxT(t)))
	_, _, err = ad.Start(ctx, "other")
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, started.End(ctxT(t), nil))
	_, err = in.History(ctxT(t), "other")
	require.ErrorIs(t, err, schedlock.ErrUnknownJob)
}

// B31: what an adapter cannot do is refused when it is made or named, and not at the first tick.
func TestAdapterRefuses(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	ctx := ctxT(t)
	for name, tt := range map[string]struct {
		schedule schedlock.Schedule
		opts     []schedlock.Option
	}{
		"no schedule":   {nil, nil},
		"period":        {schedlock.Periods(0), nil},
		"option":        {grid(time.Hour), []schedlock.Option{schedlock.AtMost(-1)}},
		"failed, again": {grid(time.Hour), []schedlock.Option{schedlock.RetryFailed(1, time.Second)}},
	} {
		_, err := schedlock.NewAdapter(in.Locker, tt.schedule, tt.opts...)
		require.ErrorIs(t, err, schedlock.ErrInvalid, name)
	}
	periods, err := schedlock.NewAdapter(in.Locker, schedlock.Periods(time.Hour))
	require.NoError(t, err)
	require.ErrorIs(t, periods.Plan("job"), schedlock.ErrInvalid, "it has no next fire time")
	require.ErrorIs(t, periods.SetCrontab("@hourly", time.UTC, time.Now()), schedlock.ErrInvalid)
	require.Zero(t, periods.Next(time.Now()))
	require.ErrorIs(t, periods.Remove(ctx), schedlock.ErrInvalid, "it is for any number of jobs")
	_, _, err = periods.Start(ctx, "")
	require.ErrorIs(t, err, schedlock.ErrInvalid)

	one, err := schedlock.NewAdapter(in.Locker, grid(time.Hour), schedlock.AtLeast(time.Hour))
	require.NoError(t, err)
	require.ErrorIs(t, one.SetCrontab("@hourly", time.UTC, time.Now()), schedlock.ErrInvalid, "AtLeast is as long as the interval")
	one, err = schedlock.NewAdapter(in.Locker, grid(time.Hour))
	require.NoError(t, err)
	require.NoError(t, one.SetCrontab("@hourly", nil, time.Now()))
	require.NoError(t, one.Plan("job"))
	require.ErrorContains(t, one.Plan("other"), `belongs to job "job"`)
	_, _, err = one.Start(ctx, "other")
	require.ErrorIs(t, err, schedlock.ErrInvalid)
}

// elsewhere is a schedule that never fires in one zone.
type elsewhere struct{ zone *time.Location }

func (s elsewhere) Next(t time.Time) time.Time {
	if t.Location() == s.zone {
		return time.Time{}
	}
	return grid(time.Hour).Next(t)
}

// A crontab that is refused changes nothing: the adapter asks its schedule in the zone of the former one.
func TestAdapterKeepsItsCrontab(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in, here, never := f.instance(nil, nil), time.FixedZone("here", 3600), time.FixedZone("never", 7200)
	ad, err := schedlock.NewAdapter(in.Locker, elsewhere{never})
	require.NoError(t, err)
	now := time.Now().In(here)
	require.NoError(t, ad.SetCrontab("@hourly", here, now))
	next := ad.Next(now)
	require.False(t, next.IsZero())
	require.ErrorIs(t, ad.SetCrontab("@hourly", never, now), schedlock.ErrInvalid)
	require.Equal(t, next, ad.Next(now))
}
