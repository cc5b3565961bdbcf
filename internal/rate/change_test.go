package rate

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Where a rate is raised, all requests from before weigh at least as much in the new division as their shares give in the
// former one, and no more than all of it. A lowered rate is divided as a new one.
func TestChange(t *testing.T) {
	t.Parallel()
	of := func(perSecond float64, burst, shares int64) Division { return Division{Rate{perSecond, burst}, shares} }
	for _, c := range []struct {
		from           Division
		to             Rate
		shares, weight int64
	}{
		{Division{}, Rate{100, 50}, 50, 1},
		{of(10, 10, 10), Rate{100, 100}, 64, 1},
		{of(10, 10, 10), Rate{100, 10}, 10, 1},
		{of(10, 1, 1), Rate{20, 20}, 20, 10},
		{of(10, 1, 1), Rate{100, 100}, 64, 7},
		{of(10, 10, 10), Rate{10, 10}, 10, 1},
		{of(100, 10, 10), Rate{100, 100}, 60, 6},
		{of(0.5, 100, 1), Rate{100, 100}, 64, 64},
		{of(50, 100, 50), Rate{100, 100}, 50, 1},
		{of(100, 100, 1), Rate{100, 100}, 64, 64},
		{of(0.2, 1, 1), Rate{0.9, 1}, 1, 1},
		{of(100, 50, 50), Rate{10, 50}, 10, 1},
		{of(100, 50, 50), Rate{100, 5}, 5, 1},
		{of(100, 50, 50), Rate{200, 5}, 5, 1},
	} {
		next, weight := c.from.Change(c.to, 1)
		require.Equal(t, Division{c.to, c.shares}, next, "%v", c)
		require.Equal(t, c.weight, weight, "%v", c)
		if c.from.Shares == 0 || c.to.PerSecond < c.from.PerSecond || c.to.Burst < c.from.Burst {
			continue
		}
		was, held := c.from.share()
		is, holds := next.share()
		require.LessOrEqual(t, was, is*float64(weight)+1e-9)
		require.LessOrEqual(t, held, holds*float64(weight)+1e-9)
		require.LessOrEqual(t, c.from.Shares*weight, next.Shares)
		_, again := c.from.Change(c.to, 3)
		require.Equal(t, min(3*weight, next.Shares), again, "those from before weighed three")
	}
}

func TestFit(t *testing.T) {
	t.Parallel()
	d, f := Division{Rate{100, 100}, 10}, Former{Before: 50, Weight: 4}
	for _, c := range []struct {
		created []int64
		want    int
	}{
		{nil, 0}, {[]int64{10}, 1}, {[]int64{10, 11}, 2}, {[]int64{10, 11, 12}, 2},
		{[]int64{10, 11, 50, 51}, 4}, {[]int64{10, 11, 50, 51, 52}, 4},
		{[]int64{50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60}, 10},
	} {
		require.Equal(t, c.want, d.Fit(c.created, f), c.created)
	}
	require.EqualValues(t, 4, f.Units(49))
	require.EqualValues(t, 1, f.Units(50))
}

// changed is a fleet whose rate is raised, again and again. Its processes learn of that when they read the queue.
type changed struct {
	rev      int64
	stored   Division
	former   Former
	requests []int64 // that etcd has, by their revisions, in order
	of       map[int64]*learner
	all      []*learner
}

// learner is a process of it.
type learner struct {
	known  Division
	counts []int64 // its requests whose shares give tokens
}

func (c *changed) next() int64 { c.rev++; return c.rev }

func (c *changed) raise(to Rate) {
	weighs := int64(1)
	for _, r := range c.requests {
		weighs = max(weighs, c.former.Units(r))
	}
	var weight int64
	c.stored, weight = c.stored.Change(to, weighs)
	c.former = Former{c.next(), weight}
}

// read has a process do what ratelimit's learn does.
func (c *changed) read(l *learner) {
	l.known, l.counts = c.stored, nil
	var retired []int64
	fit := c.stored.Fit(c.requests, c.former)
	for i, r := range c.requests {
		switch {
		case c.of[r] != l:
		case c.former.Units(r) > 1:
			retired = append(retired, r)
		case i < fit:
			l.counts = append(l.counts, r)
		}
	}
	for _, r := range retired {
		c.remove(r)
	}
}

func (c *changed) remove(request int64) {
	c.requests = slices.DeleteFunc(c.requests, func(r int64) bool { return r == request })
	l := c.of[request]
	l.counts = slices.DeleteFunc(l.counts, func(r int64) bool { return r == request })
}

// TestDividedAnew: whatever the processes have read, the shares that give tokens add up to the stored rate and burst at most,
// at each moment; and once all have read it twice, all of its shares are used.
func TestDividedAnew(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) Rate {
			return Rate{rapid.SampledFrom([]float64{0.3, 1, 5, 40, 100, 1000}).Draw(t, name), rapid.SampledFrom([]int64{1, 3, 10, 50, 100}).Draw(t, "burst")}
		}
		c := &changed{stored: Divide(draw("rate")), of: map[int64]*learner{}}
		for range 4 {
			c.all = append(c.all, &learner{})
		}
		one := func(t *rapid.T) *learner { return rapid.SampledFrom(c.all).Draw(t, "process") }
		ask := func(l *learner) {
			r := c.next()
			c.requests, c.of[r] = append(c.requests, r), l
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				var perSecond, burst float64
				for _, l := range c.all {
					if len(l.counts) > 0 {
						each, capacity := l.known.share()
						perSecond, burst = perSecond+float64(len(l.counts))*each, burst+float64(len(l.counts))*capacity
					}
				}
				require.LessOrEqual(t, perSecond, c.stored.PerSecond*(1+1e-9))
				require.LessOrEqual(t, burst, float64(c.stored.Burst)*(1+1e-9))
			},
			"ask": func(t *rapid.T) {
				l := one(t)
				for range rapid.SampledFrom([]int{1, 8, mostShares}).Draw(t, "shares") {
					ask(l)
				}
			},
			"read": func(t *rapid.T) { c.read(one(t)) },
			"return": func(t *rapid.T) {
				if len(c.requests) > 0 {
					c.remove(rapid.SampledFrom(c.requests).Draw(t, "request"))
				}
			},
			"raise": func(t *rapid.T) {
				to := draw("raised") // often one of both alone: then shares from before weigh most
				switch rapid.IntRange(0, 2).Draw(t, "what") {
				case 0:
					to.PerSecond = c.stored.PerSecond
				case 1:
					to.Burst = c.stored.Burst
				}
				c.raise(Rate{max(to.PerSecond, c.stored.PerSecond), max(to.Burst, c.stored.Burst)})
			},
		})
		for range 2 {
			for _, l := range c.all {
				for range mostShares {
					ask(l)
				}
				c.read(l)
			}
		}
		n := int64(0)
		for _, l := range c.all {
			c.read(l)
			n += int64(len(l.counts))
		}
		require.Equal(t, c.stored.Shares, n)
	})
}
