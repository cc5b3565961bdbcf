package rank_test

import (
	"fmt"
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

// One row for each side of each bound: after how many deletions a request that sleeps by a sample wakes.
func TestHorizonDeletions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ahead, limit, saved int64
		until               int64
		far                 bool
	}{
		"first":                    {100, 100, 0, -48, false},
		"not worth a sleep":        {185, 100, 0, 15, false},
		"far":                      {186, 100, 0, 16, true},
		"a quarter early":          {264, 100, 0, 75, true},
		"a smaller reserve":        {186, 100, 39, 45, true},
		"of a limit of 32":         {86, 32, 0, 16, true},
		"of a limit of 32, nearer": {85, 32, 0, 15, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			until, far := rank.StoredLimit.Sampling(c.limit).Saving(c.saved, c.limit).Deletions(c.ahead, c.limit)
			require.Equal(t, c.until, until)
			require.Equal(t, c.far, far)
		})
	}
}

// W8: a session learns how early its requests have to begin to follow. One that was late brings half of the reserve
// back; the reserve is never greater than at first, and never below what should be left.
func TestHorizonLearns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		h                        rank.Horizon
		saved, left, limit, then int64
	}{
		"early":                        {rank.StoredLimit, 0, 5, 1, 1},
		"in time":                      {rank.StoredLimit, 3, 4, 1, 3},
		"just in time":                 {rank.StoredLimit, 3, 1, 1, 2},
		"late":                         {rank.StoredLimit, 6, -1, 1, 3},
		"late, with the whole":         {rank.StoredLimit, 0, -1, 1, 0},
		"just in time, with the whole": {rank.StoredLimit, 0, 0, 1, 0},
		"early, with the least":        {rank.StoredLimit, 6, 9, 1, 6},
		"the limit is less by now":     {rank.StoredLimit, 40, 9, 1, 6},
		"sampled, early":               {rank.StoredLimit.Sampling(100), 10, 51, 100, 11},
		"sampled, in time":             {rank.StoredLimit.Sampling(100), 10, 25, 100, 10},
		"sampled, just in time":        {rank.StoredLimit.Sampling(100), 10, 24, 100, 9},
		"sampled, with the least":      {rank.StoredLimit.Sampling(100), 39, 90, 100, 39},
		"tiny":                         {rank.Tiny, 0, 9, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.then, c.h.Learn(c.saved, c.left, c.limit))
		})
	}
}

// Whatever the queue, a sample has one of about so many requests as Share says, and any block of keys has as many parts of
// it as its length says, but for one: those of one process, whose permits end together, are not left out (W7).
func TestHorizonSample(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := rank.Horizon{Parts: rapid.IntRange(1, 10).Draw(t, "parts"), Every: rapid.Int64Range(1, 20).Draw(t, "every")}
		n := rapid.IntRange(0, 2000).Draw(t, "keys")
		var keys []string
		for i := range n {
			keys = append(keys, fmt.Sprintf("%04d", i))
		}
		parts, weight := h.Sample(keys, rapid.Float64Range(0, 0.999).Draw(t, "from"))
		in := make([]bool, n)
		covered := 0
		for i, key := range keys {
			for _, p := range parts {
				if p.From <= key && key < p.To {
					require.False(t, in[i], "no key is in two parts")
					in[i] = true
					covered++
				}
			}
		}
		if n == 0 {
			require.Empty(t, parts)
			return
		}
		require.Len(t, parts, min(n, h.Parts))
		require.EqualValues(t, n/covered, weight)
		require.LessOrEqual(t, int64(covered), max(int64(n)/h.Every, int64(h.Parts)))
		block := rapid.IntRange(0, n).Draw(t, "block")
		first := rapid.IntRange(0, n-block).Draw(t, "first")
		whole := 0
		for _, p := range parts {
			if block > 0 && keys[first] <= p.From && p.To <= keys[first+block-1]+"\x00" {
				whole++
			}
		}
		require.GreaterOrEqual(t, whole, block*len(parts)/n-2)
	})
}
