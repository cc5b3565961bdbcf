package schedlock_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/schedlock"
)

// A350: the greatest and the least value of each option are refused, or mean no bound: no sum with them has another sign.
func TestExtremeOptions(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a := f.instance(nil, nil)
	const long, whole = time.Duration(math.MaxInt64), time.Duration(math.MaxInt64 / 1_000_000 * 1_000_000)
	at := schedlock.Tick(tick(1))
	for name, tt := range map[string]struct {
		opts []schedlock.CallOption
		ok   bool
	}{
		"AtMost":         {[]schedlock.CallOption{at, schedlock.AtMost(long)}, true},
		"no AtMost":      {[]schedlock.CallOption{at, schedlock.AtMost(math.MinInt64)}, false},
		"AtLeast":        {[]schedlock.CallOption{at, schedlock.AtLeast(long)}, false},
		"no AtLeast":     {[]schedlock.CallOption{at, schedlock.AtLeast(math.MinInt64)}, false},
		"LateBy":         {[]schedlock.CallOption{at, schedlock.LateBy(long)}, true},
		"no LateBy":      {[]schedlock.CallOption{at, schedlock.LateBy(math.MinInt64)}, false},
		"Apart":          {[]schedlock.CallOption{at, schedlock.Apart(long)}, true},
		"no Apart":       {[]schedlock.CallOption{at, schedlock.Apart(math.MinInt64)}, false},
		"Every":          {[]schedlock.CallOption{schedlock.Every(long)}, false}, // no whole number of milliseconds
		"whole Every":    {[]schedlock.CallOption{schedlock.Every(whole)}, true},
		"no Every":       {[]schedlock.CallOption{schedlock.Every(math.MinInt64)}, false},
		"Retries":        {[]schedlock.CallOption{at, schedlock.Retries(math.MaxInt)}, false},
		"no Retries":     {[]schedlock.CallOption{at, schedlock.Retries(math.MinInt)}, false},
		"RetryFailed":    {[]schedlock.CallOption{at, schedlock.RetryFailed(math.MaxInt, time.Second)}, false},
		"no RetryFailed": {[]schedlock.CallOption{at, schedlock.RetryFailed(math.MinInt, time.Second)}, false},
		"pause":          {[]schedlock.CallOption{at, schedlock.RetryFailed(1, long)}, true},
		"no pause":       {[]schedlock.CallOption{at, schedlock.RetryFailed(1, math.MinInt64)}, false},
		"Planned":        {[]schedlock.CallOption{at, schedlock.Planned(grid(time.Hour), long)}, true},
		"not Planned":    {[]schedlock.CallOption{at, schedlock.Planned(grid(time.Hour), math.MinInt64)}, false},
		"all":            {[]schedlock.CallOption{at, schedlock.AtMost(long), schedlock.LateBy(long), schedlock.RetryFailed(1, long), schedlock.Apart(long)}, true},
	} {
		res, err := a.Do(ctx, "job "+name, nothing, tt.opts...)
		if !tt.ok {
			require.ErrorIs(t, err, schedlock.ErrInvalid, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, schedlock.Ran, res.Outcome, name)
	}
	res, err := a.Do(ctx, "job", func(_ context.Context, r *schedlock.Run) error {
		require.ErrorIs(t, r.Extend(math.MinInt64), schedlock.ErrInvalid)
		return r.Extend(long)
	})
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, res.Outcome)
	res, err = a.Do(ctx, "job all", nothing, schedlock.Tick(tick(2)), schedlock.AtMost(long), schedlock.Apart(long))
	require.NoError(t, err)
	require.Equal(t, schedlock.Claimed, res.Outcome, "no two ticks are that far apart")
}

// A350: RetryFailed is refused if no attempt after a failure ends before the next tick, however long AtMost or the pause is.
func TestExtremeRetryFailed(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, nil)
	for _, long := range []time.Duration{math.MaxInt64, math.MaxInt64 - time.Second, math.MaxInt64 - 2*time.Second, time.Minute} {
		for name, opts := range map[string][]schedlock.JobOption{
			"AtMost": {schedlock.AtMost(long), schedlock.RetryFailed(3, time.Second)},
			"pause":  {schedlock.RetryFailed(3, long), schedlock.AtMost(time.Second)},
			"both":   {schedlock.AtMost(long), schedlock.RetryFailed(3, long)},
		} {
			for _, schedule := range []schedlock.Schedule{schedlock.Periods(time.Minute), grid(time.Minute)} {
				_, err := a.Job("job", schedule, nothing, opts...)
				require.ErrorIs(t, err, schedlock.ErrInvalid, "%s of %v, %T", name, long, schedule)
			}
		}
		_, err := a.Do(ctxT(t), "job", nothing, schedlock.Every(time.Minute), schedlock.AtMost(long), schedlock.RetryFailed(3, time.Second))
		require.ErrorIs(t, err, schedlock.ErrInvalid, "%v", long)
	}
}

// A350: with the greatest MaxSkew each later tick counts, and with the greatest values of the others all records are kept.
func TestExtremeLocker(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]*schedlock.Options{
		"KeepFor": {KeepFor: math.MinInt64}, "MaxSkew": {MaxSkew: math.MinInt64}, "Keep": {Keep: math.MinInt}, "much to Keep": {Keep: math.MaxInt},
	} {
		f := shared(t)
		_, err := schedlock.New(f.instance(nil, nil).sess, o)
		require.ErrorIs(t, err, schedlock.ErrInvalid, name)
	}
	for _, skew := range []time.Duration{math.MaxInt64, math.MaxInt64 - time.Millisecond, time.Minute} {
		t.Run(fmt.Sprint(skew), func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx, o := ctxT(t), &schedlock.Options{MaxSkew: skew, KeepFor: math.MaxInt64}
			a, b := f.instance(nil, o), f.instance(nil, o)
			res, err := a.Do(ctx, "job", nothing, schedlock.Tick(tick(2)))
			require.NoError(t, err)
			require.Equal(t, schedlock.Ran, res.Outcome)
			for _, in := range []instance{a, b} {
				res, err = in.Do(ctx, "job", nothing, schedlock.Tick(tick(1)))
				require.NoError(t, err)
				require.Equal(t, schedlock.Late, res.Outcome, "a later tick was claimed")
			}
			fails := errors.New("it fails")
			job, err := a.Job("plan", grid(time.Hour), func(context.Context, *schedlock.Run) error { return fails })
			require.NoError(t, err)
			job.Next(time.Now())
			for range 2 {
				_, err = job.RunContext(ctx)
			}
			require.NoError(t, err, "it has run for this tick")
			require.NoError(t, a.sess.Close(ctx))
			require.NoError(t, b.sess.Close(ctx))
			require.NoError(t, f.instance(nil, o).Forget(ctx, "job"))
		})
	}
}
