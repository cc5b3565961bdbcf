package rank_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/etcdkit/etcdkit/internal/rank"
)

// line returns so many requests of weight 1, the youngest first: their tokens are their ranks from 1.
func line(n int) (before []rank.Entry) {
	for i := n; i > 0; i-- {
		before = append(before, rank.Entry{Key: strconv.Itoa(i), Create: int64(i), Weight: 1})
	}
	return before
}

// One row for each side of each bound: what a request with so many before it watches, by rank.
func TestHorizonWatch(t *testing.T) {
	t.Parallel()
	heavy := line(40)
	for i := range heavy {
		heavy[i].Weight = 5
	}
	for name, c := range map[string]struct {
		h      rank.Horizon
		before []rank.Entry
		limit  int64
		want   []int64
	}{
		"first":                           {rank.StoredLimit, nil, 1, nil},
		"in the window":                   {rank.StoredLimit, line(9), 1, nil},
		"too few beyond it to watch":      {rank.StoredLimit, line(13), 1, nil},
		"none before those, so they hold": {rank.StoredLimit, line(14), 1, nil},
		"far":                             {rank.StoredLimit, line(15), 1, []int64{5, 4, 3, 2}},
		"limit 10, near":                  {rank.StoredLimit, line(43), 10, nil},
		"limit 10, far":                   {rank.StoredLimit, line(44), 10, []int64{14, 13, 12, 11}},
		"a pause, far":                    {rank.StoredLimit, line(12), 0, []int64{4, 3, 2, 1}},
		"weight counts":                   {rank.StoredLimit, heavy, 10, []int64{34, 33, 32, 31}},
		"heavy, near":                     {rank.StoredLimit, heavy[:11], 10, nil},
		"heavy, far":                      {rank.StoredLimit, heavy[:12], 10, []int64{34, 33, 32, 31}},
		"few: one will do":                {rank.FixedLimit.Few(1), line(8), 1, []int64{2}},
		"few, near":                       {rank.FixedLimit.Few(1), line(7), 1, nil},
		"few of a greater limit":          {rank.StoredLimit.Few(2), line(16), 2, []int64{4, 3, 2, 1}[:0]},
		"tiny":                            {rank.Tiny, line(2), 1, []int64{2}},
		"tiny, near":                      {rank.Tiny, line(1), 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []int64
			for _, e := range c.h.Watch(c.before, c.limit) {
				got = append(got, e.Create)
			}
			require.Equal(t, len(c.want), len(got), "%v", got)
			if len(c.want) > 0 {
				require.Equal(t, c.want, got)
			}
		})
	}
}

// Whatever the queue, the watched requests are beyond the window, and requests that use the whole limit
// are before them. And fewer requests than Distance are always near, so that they need not be listed.
func TestHorizonProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := rank.Horizon{
			Limits: rapid.Int64Range(0, 3).Draw(t, "limits"), Least: rapid.Int64Range(-1, 10).Draw(t, "least"), Most: rapid.Int64Range(-1, 20).Draw(t, "most"),
			Watched: rapid.IntRange(1, 5).Draw(t, "watched"), Gone: 1,
		}
		limit := rapid.Int64Range(0, 20).Draw(t, "limit")
		if rapid.Bool().Draw(t, "few") {
			h = h.Few(limit)
		}
		before := line(rapid.IntRange(0, 120).Draw(t, "before"))
		light := rapid.Bool().Draw(t, "light")
		for i := range before {
			if !light {
				before[i].Weight = rapid.Int64Range(1, 4).Draw(t, "weight")
			}
		}
		watched := h.Watch(before, limit)
		if len(watched) == 0 {
			require.True(t, int64(len(before)) < h.Distance(limit), "a request is far from Distance on")
			require.True(t, len(before) == 0 || h.Stays(len(before), limit), "and one that becomes near stays near")
			require.True(t, h.Stays(0, limit))
			return
		}
		if light {
			require.GreaterOrEqual(t, int64(len(before)), h.Distance(limit), "fewer are near")
		}
		require.Len(t, watched, h.Watched)
		var after, older int64
		for _, e := range before {
			if e.Create > watched[0].Create {
				after += e.Weight
			}
			if e.Create < watched[len(watched)-1].Create {
				older += e.Weight
			}
		}
		require.GreaterOrEqual(t, after, h.Limits*limit-1, "they are beyond the window")
		require.GreaterOrEqual(t, older, limit, "they wait as well")
	})
}

func TestHorizonStays(t *testing.T) {
	t.Parallel()
	for ahead, stays := range map[int]bool{0: true, 14: true, 19: true, 20: false} {
		require.Equal(t, stays, rank.StoredLimit.Stays(ahead, 1), "%d", ahead)
	}
	require.True(t, rank.Tiny.Stays(1, 1))
	require.False(t, rank.Tiny.Stays(2, 1))
}

// What the production horizons promise to those that wait and to etcd, whatever their numbers are.
func TestProductionHorizons(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]rank.Horizon{"stored": rank.StoredLimit, "fixed": rank.FixedLimit} {
		for _, limit := range []int64{1, 2, 10, 100} {
			t.Run(name+", limit "+strconv.FormatInt(limit, 10), func(t *testing.T) {
				t.Parallel()
				h := of
				if limit == 1 {
					few := of.Few(limit)
					require.Equal(t, []int{1, 1}, []int{few.Watched, few.Gone}, "one look per admission where requests go in their order")
				} else {
					require.Equal(t, of, of.Few(limit), "elsewhere the first sleep is no other")
				}
				require.Greater(t, h.Gone, 1, "W9: one request that gives up is no reason to list")
				require.LessOrEqual(t, h.Gone, h.Watched/2, "W9: half of the watched ones may hold for long")
				require.Positive(t, h.Look)
				require.LessOrEqual(t, h.Look, time.Second, "W15: a slot stays idle for a second")
				require.LessOrEqual(t, h.Renew, 30*time.Second, "W13: the history that a watch would read again")
				require.Greater(t, h.Renew, 10*h.Look, "a renewal costs a list: it is rare beside the looks")
			})
		}
	}
}
