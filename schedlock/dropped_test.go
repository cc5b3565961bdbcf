package schedlock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/schedlock"
)

// A247: a scheduler drops the call by which a lost run is to be started again, as gocron may, or refuses it. Its next call is for
// the tick that has come since.
func TestDroppedRetryCostsNoTick(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		schedule schedlock.Schedule
		again    error
	}{
		"periods":           {schedlock.Periods(24 * time.Hour), nil},
		"schedule":          {grid(24 * time.Hour), nil},
		"schedule, refused": {grid(24 * time.Hour), errors.New("no such job")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			now := clock(midnight.Add(time.Minute))
			dying, in := f.instance(nil, now.options()), f.instance(nil, now.options())
			adapter := func(in instance) *schedlock.Adapter {
				ad, err := schedlock.NewAdapter(in.Locker, tt.schedule, schedlock.Retries(1), schedlock.LateBy(30*time.Hour))
				require.NoError(t, err)
				if name != "periods" {
					require.NoError(t, ad.SetCrontab("daily", time.UTC, now.now()))
				}
				return ad
			}
			started, _, err := adapter(dying).Start(ctx, "job")
			require.NoError(t, err)
			require.Equal(t, midnight, started.Run().Tick())
			ad := adapter(in)
			again := make(chan struct{}, 10)
			ad.Retry("job", func() error { again <- struct{}{}; return tt.again })
			_, res, err := ad.Start(ctx, "job")
			require.NoError(t, err)
			require.Equal(t, schedlock.Claimed, res.Outcome)
			dying.client.Cut()
			require.NoError(t, f.ExpireLease(ctx, dying.sess.Lease()))
			got(t, again, "it is to be called again")
			now.set(midnight.Add(24*time.Hour + time.Second))
			next, res, err := ad.Start(ctx, "job")
			require.NoError(t, err)
			require.NotNil(t, next, "%v", res.Outcome)
			require.Equal(t, midnight.AddDate(0, 0, 1), next.Run().Tick())
			require.NoError(t, next.End(ctx, nil))
			_ = started.End(ctx, nil) // its client is cut off
		})
	}
}

// A247: a run is lost after the next fire time has come, within LateBy, and no process has claimed that. The call that the scheduler
// is asked for is for the tick that was lost.
func TestRetryInALaterPeriod(t *testing.T) {
	t.Parallel()
	for name, schedule := range map[string]schedlock.Schedule{"periods": schedlock.Periods(24 * time.Hour), "schedule": grid(24 * time.Hour)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			now := clock(midnight.Add(time.Minute))
			dying, in := f.instance(nil, now.options()), f.instance(nil, now.options())
			adapter := func(in instance) *schedlock.Adapter {
				ad, err := schedlock.NewAdapter(in.Locker, schedule, schedlock.Retries(1), schedlock.LateBy(30*time.Hour))
				require.NoError(t, err)
				if name != "periods" {
					require.NoError(t, ad.SetCrontab("daily", time.UTC, now.now()))
				}
				return ad
			}
			started, _, err := adapter(dying).Start(ctx, "job")
			require.NoError(t, err)
			ad := adapter(in)
			again := make(chan struct{}, 10)
			ad.Retry("job", func() error { again <- struct{}{}; return nil })
			_, res, err := ad.Start(ctx, "job")
			require.NoError(t, err)
			require.Equal(t, schedlock.Claimed, res.Outcome)
			now.set(midnight.Add(24*time.Hour + time.Minute))
			dying.client.Cut()
			require.NoError(t, f.ExpireLease(ctx, dying.sess.Lease()))
			got(t, again, "it is to be called again")
			next, res, err := ad.Start(ctx, "job")
			require.NoError(t, err)
			require.NotNil(t, next, "%v", res.Outcome)
			require.Equal(t, []any{midnight, 2}, []any{next.Run().Tick(), next.Run().Attempt()})
			require.NoError(t, next.End(ctx, nil))
			_ = started.End(ctx, nil) // its client is cut off
		})
	}
}

// A278: on the day on which the clocks go forward the run of the second call within one day in UTC is lost, whose tick is halfway
// between two days. The call that gocron is asked for is for that tick.
func TestRetryHalfwayBetweenTwoDays(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	night := time.Date(2026, 3, 29, 1, 30, 0, 0, berlin(t))
	now := clock(night)
	dying, in := f.instance(nil, now.options()), f.instance(nil, now.options())
	adapter := func(in instance) *schedlock.Adapter {
		ad, err := schedlock.NewAdapter(in.Locker, schedlock.Periods(24*time.Hour), schedlock.Retries(1))
		require.NoError(t, err)
		return ad
	}
	dies, lives := adapter(dying), adapter(in)
	again := make(chan struct{}, 10)
	lives.Retry("job", func() error { again <- struct{}{}; return nil })
	skipped := func() {
		t.Helper()
		_, res, err := lives.Start(ctx, "job")
		require.NoError(t, err)
		require.Equal(t, schedlock.Claimed, res.Outcome)
	}
	started, _, err := dies.Start(ctx, "job")
	require.NoError(t, err)
	require.NoError(t, started.End(ctx, nil))
	skipped()
	now.set(night.AddDate(0, 0, 1))
	started, _, err = dies.Start(ctx, "job")
	require.NoError(t, err)
	halfway := time.Date(2026, 3, 29, 12, 0, 0, 0, time.UTC)
	require.Equal(t, halfway, started.Run().Tick())
	skipped()
	dying.client.Cut()
	require.NoError(t, f.ExpireLease(ctx, dying.sess.Lease()))
	got(t, again, "it is to be called again")
	next, res, err := lives.Start(ctx, "job")
	require.NoError(t, err)
	require.NotNil(t, next, "%v", res.Outcome)
	require.Equal(t, []any{halfway, 2}, []any{next.Run().Tick(), next.Run().Attempt()})
	require.NoError(t, next.End(ctx, nil))
	_ = started.End(ctx, nil) // its client is cut off
}
