package rate

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSlow(t *testing.T) {
	t.Parallel()
	for rate, want := range map[Rate]bool{
		{0.2, 1}: true, {0.999, 100}: true, {LeastPerSecond, math.MaxInt32}: true,
		{1, 1}: false, {1, 5}: false, {0.5, 50}: true, {100, 1}: false,
	} {
		require.Equal(t, want, Divide(rate).Slow(), rate)
	}
	require.False(t, Division{Rate{0.5, 4}, 2}.Slow(), "its tokens are in two places")
	require.False(t, Division{}.Slow(), "it was not read yet")
}

// TestAfter: what was stored, and what has accrued since, but nothing for the time in which the process that stored it
// took tokens, and never more than the burst.
func TestAfter(t *testing.T) {
	t.Parallel()
	d := Divide(Rate{0.5, 3})
	for name, c := range map[string]struct {
		s      StoredTokens
		passed time.Duration
		want   float64
	}{
		"at once":                {StoredTokens{Left: 0.25}, 0, 0.25},
		"a little less":          {StoredTokens{Left: 0.25}, 2 * time.Second, 0.25 + pace},
		"the burst":              {StoredTokens{Left: 0.25}, time.Hour, 3},
		"more than the burst":    {StoredTokens{Left: 9}, 0, 3},
		"in the grace":           {StoredTokens{Grace: 15 * time.Second}, 15 * time.Second, 0},
		"after it":               {StoredTokens{Grace: 15 * time.Second}, 17 * time.Second, pace},
		"left and a grace":       {StoredTokens{Left: 1, Grace: 15 * time.Second}, time.Second, 1},
		"a clock that went back": {StoredTokens{Left: 1}, -time.Hour, 1},
	} {
		require.InDelta(t, c.want, d.After(c.s, c.passed), 1e-9, name)
	}
}

// TestFills: after that time the bucket is full, as far as that can be measured.
func TestFills(t *testing.T) {
	t.Parallel()
	for _, r := range []Rate{{0.2, 1}, {0.5, 3}, {1.0 / 3600, 10}, {0.999, 1000}} {
		d := Divide(r)
		for _, s := range []StoredTokens{{}, {Left: 0.5}, {Left: float64(r.Burst)}, {Grace: 15*time.Second + 100*time.Millisecond}} {
			fill := d.Fills(s)
			require.Zero(t, fill%time.Second)
			require.InDelta(t, float64(r.Burst), d.After(s, fill), 1e-9, "%v %v", r, s)
			require.Less(t, fill.Seconds(), (float64(r.Burst)-s.Left)/r.PerSecond*1.002+s.Grace.Seconds()+4)
		}
	}
	most := Divide(Rate{LeastPerSecond, math.MaxInt32}).Fills(StoredTokens{Grace: time.Minute})
	require.Positive(t, most)
	require.LessOrEqual(t, int64(most/time.Second), int64(math.MaxInt32), "what a record may have")
}

// TestAgain: what is stored again gives no more than what it replaces, and what remains of the grace stays.
func TestAgain(t *testing.T) {
	t.Parallel()
	d := Divide(Rate{0.5, 3})
	for _, s := range []StoredTokens{{}, {Left: 0.25}, {Left: 9}, {Grace: 15 * time.Second}} {
		for _, passed := range []time.Duration{0, 3 * time.Second, 15 * time.Second, time.Minute} {
			again := d.Again(s, passed)
			for _, more := range []time.Duration{0, 2 * time.Second, time.Hour} {
				require.InDelta(t, d.After(s, passed+more), d.After(again, more), 1e-9, "%v %v %v", s, passed, more)
			}
		}
	}
}

// TestOutlasts: the time of a record is too short for a lower rate and for a greater burst, and for no others.
func TestOutlasts(t *testing.T) {
	t.Parallel()
	was := Divide(Rate{0.5, 3})
	for _, s := range []StoredTokens{{}, {Left: 2.5}, {Grace: 15*time.Second + 100*time.Millisecond}} {
		measured := was.Fills(s)
		for r, want := range map[Rate]bool{{0.5, 3}: false, {0.9, 3}: false, {0.5, 2}: false, {0.05, 3}: true, {0.5, 10}: true} {
			require.Equal(t, want, Divide(r).Outlasts(s, measured), "%v %v", s, r)
		}
	}
	most := Divide(Rate{LeastPerSecond, math.MaxInt32})
	require.False(t, most.Outlasts(StoredTokens{}, most.Fills(StoredTokens{})), "no more can be measured")
}

func TestEarliest(t *testing.T) {
	t.Parallel()
	d := Divide(Rate{4, 2})
	require.Zero(t, d.Earliest(-1))
	require.Zero(t, d.Earliest(0))
	require.Equal(t, 250*time.Millisecond, d.Earliest(1))
	require.Positive(t, Divide(Rate{LeastPerSecond, 1}).Earliest(1e12), "bounded")
}

// Stored tokens are added to an empty share once, and what the share has accrued since then is no more.
func TestLoad(t *testing.T) {
	t.Parallel()
	d := Divide(Rate{0.5, 3})
	var b Bucket
	b.Set(at(0), 1, d)
	b.Load(at(0), 2.5)
	require.InDelta(t, 2.5, b.Left(at(0)), 1e-9)
	require.Equal(t, 2, takes(&b, at(0)))
	b.Load(at(1), 0.25)
	require.InDelta(t, 0.5+0.5*pace, b.Left(at(1)), 1e-9, "it has more by now")
	b.Load(at(1), 9)
	require.InDelta(t, 3, b.Left(at(1)), 1e-9, "the burst")
	b.Set(at(1), 0, d)
	b.Load(at(1), 9)
	require.Zero(t, b.Left(at(1)), "no share")
}
