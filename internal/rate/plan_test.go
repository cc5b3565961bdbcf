package rate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSurvey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		leases []int64
		shares int64
		want   Seen
	}{
		"empty":                           {nil, 10, Seen{Free: 10, Fair: 10}},
		"own alone":                       {[]int64{1, 1}, 10, Seen{Free: 8, Fair: 10}},
		"another waits":                   {[]int64{1, 1, 1, 1, 2}, 4, Seen{Free: -1, Fair: 2, Others: 1, Wanted: 1}},
		"others wait for more than fair":  {[]int64{1, 1, 2, 2, 2, 2, 2}, 4, Seen{Free: -3, Fair: 2, Others: 1}},
		"only the part that is fair":      {[]int64{1, 1, 1, 2, 2, 2, 2}, 4, Seen{Free: -3, Fair: 2, Others: 1, Wanted: 1}},
		"more processes than shares":      {[]int64{1, 2, 3, 4}, 2, Seen{Free: -2, Fair: 0, Others: 3, Wanted: 2}},
		"the own requests are not others": {[]int64{2, 2, 1, 1}, 2, Seen{Free: -2, Fair: 1, Others: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, Survey(c.leases, 1, c.shares))
		})
	}
}

func TestNext(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		s    Seen
		o    Own
		want Step
	}{
		"asks for what it needs":           {Seen{Free: 10, Fair: 10}, Own{Need: 3}, Step{Ask: 3}},
		"has asked already":                {Seen{Free: 7, Fair: 10}, Own{Need: 3, Asked: 3}, Step{}},
		"up to its fair part":              {Seen{Free: 0, Fair: 5}, Own{Need: 9}, Step{Ask: 5}},
		"and what is free":                 {Seen{Free: 2, Fair: 3}, Own{Need: 9, Held: 3}, Step{Ask: 2}},
		"one at least":                     {Seen{Free: -3, Fair: 0}, Own{Need: 9}, Step{Ask: 1}},
		"needs nothing, none waits":        {Seen{Free: 4, Fair: 5}, Own{Held: 6}, Step{}},
		"needs nothing, and none is free":  {Seen{Fair: 5, Others: 1}, Own{Held: 5}, Step{Return: 3}},
		"needs less, and none is free":     {Seen{Fair: 5, Others: 1}, Own{Need: 3, Held: 4}, Step{Return: 1}},
		"needs more, and none is free":     {Seen{Fair: 5, Others: 1}, Own{Need: 6, Held: 5}, Step{}},
		"needs nothing, it is alone":       {Seen{Fair: 5}, Own{Held: 5}, Step{}},
		"needs nothing, others wait":       {Seen{Fair: 5, Wanted: 2}, Own{Held: 6}, Step{Return: 2}},
		"needs less, others wait":          {Seen{Fair: 5, Wanted: 9}, Own{Need: 2, Held: 3}, Step{Return: 1}},
		"above its part, others wait":      {Seen{Fair: 5, Wanted: 9}, Own{Need: 10, Held: 10}, Step{Return: 5}},
		"above its part, one waits":        {Seen{Fair: 5, Wanted: 1}, Own{Need: 10, Held: 10}, Step{Return: 1}},
		"above its part, none has less":    {Seen{Fair: 5}, Own{Need: 10, Held: 6}, Step{}},
		"withdraws what is above its part": {Seen{Free: -4, Fair: 5}, Own{Need: 10, Held: 4, Asked: 4}, Step{Withdraw: 3}},
		"withdraws what it needs no more":  {Seen{Free: -4, Fair: 5}, Own{Need: 1, Held: 1, Asked: 4}, Step{Withdraw: 4}},
		"its only share, before its turn":  {Seen{Free: -4, Wanted: 4}, Own{Need: 3, Held: 1}, Step{}},
		"its only share, when it is over":  {Seen{Free: -4, Wanted: 4}, Own{Need: 3, Held: 1, TurnOver: true}, Step{Return: 1, Ask: 1}},
		"two of too few shares":            {Seen{Free: -4, Wanted: 4}, Own{Need: 3, Held: 2}, Step{Return: 1}},
		"its only share, without a need":   {Seen{Free: -4, Wanted: 4}, Own{Held: 1}, Step{Return: 1}},
		"idle":                             {Seen{Free: 4, Fair: 9}, Own{Held: 3, Asked: 2, Idle: true}, Step{Withdraw: 2, Return: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, Next(c.s, c.o))
		})
	}
}

// step has each process of a queue take one step, one after the other. need is by process. A step is
// as long as a turn.
func step(queue []int64, shares int64, need map[int64]int64) []int64 {
	before := held(queue, shares)
	for lease := int64(1); lease <= int64(len(need)); lease++ {
		o := Own{Need: need[lease], TurnOver: before[lease] > 0}
		for i, l := range queue {
			if l == lease && int64(i) < shares {
				o.Held++
			} else if l == lease {
				o.Asked++
			}
		}
		next := Next(Survey(queue, lease, shares), o)
		var rest []int64
		held, asked := next.Return, next.Withdraw
		for i := range queue {
			at := len(queue) - 1 - i // the newest first
			l := queue[at]
			if l == lease && int64(at) >= shares && asked > 0 {
				asked--
				continue
			}
			if l == lease && int64(at) < shares && held > 0 {
				held--
				continue
			}
			rest = append([]int64{l}, rest...)
		}
		queue = rest
		for range next.Ask {
			queue = append(queue, lease)
		}
	}
	return queue
}

func held(queue []int64, shares int64) map[int64]int64 {
	n := map[int64]int64{}
	for i, l := range queue {
		if int64(i) < shares {
			n[l]++
		}
	}
	return n
}

// TestSharesMove: whatever each process holds, after a few steps of each it has what it needs or its
// fair part, and then no share moves any more.
func TestSharesMove(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shares int64
		need   map[int64]int64
	}{
		{64, map[int64]int64{1: 64}},
		{64, map[int64]int64{1: 64, 2: 64}},
		{64, map[int64]int64{1: 64, 2: 3}},
		{64, map[int64]int64{1: 0, 2: 64, 3: 64}},
		{64, map[int64]int64{1: 64, 2: 64, 3: 64, 4: 1, 5: 64}},
		{10, map[int64]int64{1: 10, 2: 10, 3: 10}},
		{10, map[int64]int64{1: 4, 2: 4, 3: 4}},
		{4, map[int64]int64{1: 9, 2: 9, 3: 9, 4: 9}},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Parallel()
			for first := range int64(len(c.need)) { // who holds all shares at the beginning
				var queue []int64
				for range c.shares {
					queue = append(queue, first+1)
				}
				for range 8 {
					queue = step(queue, c.shares, c.need)
				}
				has := held(queue, c.shares)
				fair := c.shares / int64(len(c.need))
				for lease, need := range c.need {
					require.GreaterOrEqual(t, has[lease], min(need, fair), "process %d of %v", lease, has)
				}
				for range 5 {
					queue = step(queue, c.shares, c.need)
					require.Equal(t, has, held(queue, c.shares), "no share moves without need")
				}
			}
		})
	}
}

// TestTurns: more processes than shares hold one after the other.
func TestTurns(t *testing.T) {
	t.Parallel()
	need := map[int64]int64{1: 1, 2: 1, 3: 1, 4: 1, 5: 1}
	var queue []int64
	had := map[int64]int{}
	for range 50 {
		queue = step(queue, 2, need)
		for lease := range held(queue, 2) {
			had[lease]++
		}
	}
	for lease := range need {
		require.GreaterOrEqual(t, had[lease], 10, "%v", had)
	}
}
