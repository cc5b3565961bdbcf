package check

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestRate: a window that has one too many is found, and one that may have it is not.
func TestRate(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	at := func(ms int) time.Time { return noon.Add(time.Duration(ms) * time.Millisecond) }
	moments := func(ms ...int) (spans []Span) {
		for _, m := range ms {
			spans = append(spans, Span{at(m), at(m)})
		}
		return spans
	}
	for name, c := range map[string]struct {
		spans []Span
		good  bool
	}{
		"a burst":                  {moments(0, 0, 0), true},
		"a burst and one":          {moments(0, 0, 0, 0), false},
		"the rate after a burst":   {moments(0, 0, 0, 100, 200), true},
		"too early after a burst":  {moments(0, 0, 0, 99), false},
		"in another order":         {moments(99, 0, 0, 0), false},
		"later":                    {moments(0, 5000, 5000, 5000, 5099), false},
		"one may have been before": {append(moments(5000, 5000, 5000), Span{at(0), at(5000)}), true},
		"none may":                 {append(moments(5000, 5000, 5000), Span{at(4990), at(5010)}), false},
		"all wide, certainly":      {[]Span{{at(0), at(50)}, {at(10), at(60)}, {at(0), at(80)}, {at(5), at(90)}}, false},
		"none":                     {nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.good, Rate(c.spans, 10, 3) == nil)
		})
	}
}

// TestRateOfMoments: the fast way and the slow one agree.
func TestRateOfMoments(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var spans []Span
		now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
		for range rapid.IntRange(0, 30).Draw(t, "n") {
			now = now.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "wait")) * 50 * time.Millisecond)
			spans = append(spans, Span{now, now})
		}
		var slow error
		for i := range spans {
			for j := i; j < len(spans); j++ {
				if err := exceeds(spans[i].From, spans[j].From, j-i+1, 10, 3); err != nil {
					slow = err
				}
			}
		}
		require.Equal(t, slow == nil, Rate(spans, 10, 3) == nil, "%v", slow)
	})
}
