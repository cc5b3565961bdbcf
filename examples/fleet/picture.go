package main

import (
	"fmt"
	"time"
)

// picture has what the timeline shows. Times are nanoseconds since the start of the run.
type picture struct {
	title, subtitle string
	bad             bool // there are violations
	rows, limit     int
	length          int64

	waits, pauses []bar
	holds         []bar // coloured by the end of the attempt
	beyond        []bar // from the loss of a permit until its worker noticed
	kills         []bar // at from
	working       []change
	taken         []change // permits taken in etcd
}

// bar is a span of time in a worker's row.
type bar struct {
	row      int
	from, to int64
	end      ending
	hint     string
}

func newPicture(c config, start int64, events []event, v verdict, taken []change) picture {
	p := picture{rows: c.workers, limit: c.limit, bad: len(v.Violations) > 0}
	attempts, _ := gather(events)
	ends := map[ending]int{}
	add := func(list *[]bar, a *attempt, from, to int64) {
		if from == 0 || to < from {
			return
		}
		b := bar{row: a.Worker, from: from - start, to: to - start, end: a.End}
		b.hint = fmt.Sprintf("execution %d, attempt %d: %s after %v", a.Execution, a.Number, labels[a.End],
			time.Duration(to-from).Round(time.Millisecond))
		p.length = max(p.length, b.to)
		*list = append(*list, b)
	}
	for i := range attempts {
		a := &attempts[i]
		ends[a.End]++
		switch {
		case a.Hold != 0:
			add(&p.waits, a, a.Wait, a.Hold)
		case a.Done != 0:
			add(&p.waits, a, a.Wait, a.Done)
		default:
			add(&p.waits, a, a.Wait, a.Kill)
		}
		add(&p.pauses, a, a.Stop, a.Cont)
		if a.Kill != 0 {
			add(&p.kills, a, a.Kill, a.Kill)
		}
	}
	known := map[int]int64{}
	for _, s := range v.Work {
		add(&p.holds, &attempts[s.Attempt], s.From, s.To)
		known[s.Attempt] = s.To
	}
	for i, to := range known {
		a := &attempts[i]
		if a.Lost && a.Cont == 0 {
			add(&p.beyond, a, to, a.Releasing)
		}
	}
	p.working, p.taken = since(start, v.Count), since(start, taken)
	p.title = fmt.Sprintf("%d executions under a limit of %d", ends[succeeded], c.limit)
	p.subtitle = fmt.Sprintf("%d worker processes, %s", c.workers, p.story(ends, v))
	return p
}

// story returns a summary of the run in one line.
func (p *picture) story(ends map[ending]int, v verdict) string {
	s := fmt.Sprintf("%d killed, %d paused past the TTL; ", ends[killed], ends[paused])
	switch {
	case v.Peak > p.limit:
		return s + fmt.Sprintf("%d WORKING AT THE SAME TIME: the limit did not hold", v.Peak)
	case p.bad:
		return s + fmt.Sprintf("%d VIOLATIONS", len(v.Violations))
	}
	return s + fmt.Sprintf("never more than %d working at the same time", v.Peak)
}

func since(start int64, changes []change) []change {
	shifted := make([]change, len(changes))
	for i, c := range changes {
		shifted[i] = change{max(0, c.At-start), c.N}
	}
	return shifted
}
