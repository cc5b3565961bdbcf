package schedlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/schedlock"
	"github.com/etcdkit/etcdkit/schedlock/gocronlock"
)

// The clock of a process is ahead by a day, and is then set right. The process runs the ticks of
// the present at once, and not only when time has caught up.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	job := func(s schedlock.Schedule) func(context.Context, instance) (func() error, error) {
		return func(ctx context.Context, in instance) (func() error, error) {
			j, err := in.Job("job", s, nothing)
			return func() error { _, err := j.RunContext(ctx); return err }, err
		}
	}
	for name, tt := range map[string]struct {
		tick time.Time
		make func(context.Context, instance) (func() error, error)
	}{
		"Job":              {friday, job(nine{})},
		"Job with Periods": {midnight, job(schedlock.Periods(24 * time.Hour))},
		"gocronlock.NewCron": {friday, func(ctx context.Context, in instance) (func() error, error) {
			c, err := gocronlock.NewCron[gocronLock](in.Locker, anyCron{})
			if err == nil {
				err = c.IsValid("", time.UTC, friday)
			}
			return func() error {
				lock, err := c.Lock(ctx, "job")
				if err == nil {
					err = lock.Unlock(ctx)
				}
				return err
			}, err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tomorrow := tt.tick.AddDate(0, 0, 1)
			h := clock(tomorrow)
			o := h.options()
			reported := make(chan schedlock.Result, 10)
			o.Done = func(r schedlock.Result, _ error) { reported <- r }
			call, err := tt.make(ctxT(t), shared(t).instance(nil, o))
			require.NoError(t, err)
			for _, now := range []time.Time{tomorrow, tt.tick} {
				h.set(now)
				require.NoError(t, call())
				res := got(t, reported, "a result")
				require.Equal(t, []any{schedlock.Ran, now}, []any{res.Outcome, res.Tick})
			}
			h.set(tomorrow)
			_ = call()
			res := got(t, reported, "a result")
			require.Equal(t, []any{schedlock.Claimed, tomorrow}, []any{res.Outcome, res.Tick}, "it ran before")
		})
	}
}
