package rate

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }

// takes returns how many tokens there are at a time.
func takes(b *Bucket, now time.Time) (n int) {
	for b.Take(now, true) {
		n++
	}
	return n
}

// One row for each moment at which tokens must not appear. Ten shares give 100 tokens per second,
// and have a capacity of 5 each.
func TestBucket(t *testing.T) {
	t.Parallel()
	d := Division{Rate{100, 50}, 10}
	for name, c := range map[string]struct {
		do   func(*Bucket)
		want int
	}{
		"without shares":                 {func(b *Bucket) { b.Set(at(0), 0, d) }, 0},
		"accrues a little less":          {func(b *Bucket) { b.Set(at(9.9), 10, d) }, 9},
		"to its capacity":                {func(b *Bucket) { b.Set(at(0), 2, d) }, 10},
		"a gained share is empty":        {func(b *Bucket) { b.Set(at(0), 2, d); b.Set(at(10), 10, d) }, 10},
		"a first share is empty":         {func(b *Bucket) { b.Set(at(10), 1, d) }, 0},
		"a share takes its tokens along": {func(b *Bucket) { b.Set(at(0), 2, d); b.Set(at(10), 1, d) }, 5},
		"and the last one takes all":     {func(b *Bucket) { b.Set(at(0), 2, d); b.Set(at(10), 0, d) }, 0},
		"also if it comes again":         {func(b *Bucket) { b.Set(at(0), 2, d); b.Set(at(10), 0, d); b.Set(at(10), 2, d) }, 0},
		"without trust":                  {func(b *Bucket) { b.Set(at(0), 2, d); b.Take(at(10), false) }, 0},
		"after some were lost":           {func(b *Bucket) { b.Set(at(0), 2, d); b.Void(at(9.95)); b.Set(at(9.95), 10, d) }, 4},
		"a smaller burst":                {func(b *Bucket) { b.Set(at(0), 2, d); b.Set(at(10), 2, Division{Rate{100, 10}, 10}) }, 2},
		"a clock that goes back":         {func(b *Bucket) { b.Set(at(9.95), 10, d); b.Set(at(10), 10, d); b.Set(at(9), 10, d) }, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b Bucket
			c.do(&b)
			require.Equal(t, c.want, takes(&b, at(10)))
		})
	}
}

// TestNextToken: after Next there is a token, and not before.
func TestNextToken(t *testing.T) {
	t.Parallel()
	var b Bucket
	_, ok := b.Next(at(0))
	require.False(t, ok, "no shares")
	b.Set(at(0), 3, Division{Rate{100, 50}, 10})
	for now := at(0); now.Before(at(2)); {
		d, ok := b.Next(now)
		require.True(t, ok)
		require.False(t, b.Take(now.Add(d-2), true))
		now = now.Add(d)
		require.True(t, b.Take(now, true))
	}
}

// N15: a fast clock exceeds no window, however long.
func TestFastClock(t *testing.T) {
	t.Parallel()
	const ppm, hours = 1000, 2
	d := Divide(Rate{1000, 20})
	var b Bucket
	b.Set(noon, d.Shares, d)
	n := 0
	for ms := range hours * 3600 * 1000 / 10 {
		n += takes(&b, at(float64(ms+1)*0.01*(1+ppm/1e6)))
	}
	require.LessOrEqual(t, n, hours*3600*1000+20)
	require.Greater(t, n, hours*3600*1000*995/1000)
}

// The slowest rate and many calls that wait: the estimate stays a duration.
func TestBehindIsBounded(t *testing.T) {
	t.Parallel()
	d := Divide(Rate{LeastPerSecond, 1})
	for waiting := 1; waiting <= 1_000_000; waiting *= 10 {
		require.Positive(t, d.Behind(time.Second, waiting, 1), waiting)
	}
}

func TestDivide(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		r    Rate
		want int64
	}{
		{Rate{100, 50}, 50}, {Rate{100, 1000}, mostShares}, {Rate{10, 1000}, 10}, {Rate{10, 1}, 1},
		{Rate{0.5, 10}, 1}, {Rate{LeastPerSecond, 1}, 1}, {Rate{MostPerSecond, math.MaxInt32}, mostShares},
	} {
		require.NoError(t, c.r.Check())
		d := Divide(c.r)
		require.Equal(t, Division{c.r, c.want}, d)
		each, capacity := d.share()
		require.GreaterOrEqual(t, capacity, 1.0, "a token fits")
		require.LessOrEqual(t, capacity*float64(d.Shares), float64(c.r.Burst)+1e-6)
		require.InDelta(t, c.r.PerSecond, each*float64(d.Shares), 1e-6)
		require.GreaterOrEqual(t, d.Turn().Seconds()*each*pace, 1.0, "a turn is long enough for a token")
	}
	for _, bad := range []Rate{
		{}, {-1, 1}, {0, 1}, {math.NaN(), 1}, {math.Inf(1), 1}, {math.Inf(-1), 1}, {1e-6, 1}, {1e7, 1},
		{1, 0}, {1, -1}, {1, math.MaxInt32 + 1},
	} {
		require.Error(t, bad.Check(), bad)
	}
}

func TestNeed(t *testing.T) {
	t.Parallel()
	d := Division{Rate{100, 50}, 10}
	for _, c := range []struct {
		perSecond float64
		waiting   int
		held      int64
		want      int64
	}{{0, 0, 0, 0}, {0, 0, 5, 0}, {1, 0, 0, 1}, {10, 0, 0, 1}, {11, 0, 0, 2}, {0, 1, 0, 2}, {0, 25, 0, 3}, {0, 1, 2, 8}, {30, 5, 5, 10}, {20, 0, 4, 2}, {1e9, 0, 0, 10}} {
		require.Equal(t, c.want, d.Need(c.perSecond, c.waiting, c.held), c)
	}
}
