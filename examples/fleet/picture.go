package main

import (
	"fmt"
	"time"
)

// picture is what the timeline shows, in nanoseconds from the start of the run.
type picture struct {
	title, subtitle string
	bad             bool // the run broke a promise
	rows, limit     int
	length          int64

	waits, pauses []bar
	holds         []bar // coloured by their end
	beyond        []bar // work that is over for the referee, but its worker did not know
	kills         []bar // From is when
	working       []change
	taken         []change // permits taken in etcd
}

// bar is a time in a worker's row.
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
			add(&p.beyond, a, to, a.Back)
		}
	}
	p.working, p.taken = since(start, v.Count), since(start, taken)
	p.title = fmt.Sprintf("%d executions, at most %d at a time", ends[succeeded], c.limit)
	p.subtitle = fmt.Sprintf("%d worker processes, %s", c.workers, p.story(ends, v))
	return p
}

// story tells in a line how it went.
func (p *picture) story(ends map[ending]int, v verdict) string {
	s := fmt.Sprintf("%d killed, %d paused past the TTL; ", ends[killed], ends[paused])
	switch {
	case v.Peak > p.limit:
		return s + fmt.Sprintf("%d AT WORK AT A TIME: the limit did not hold", v.Peak)
	case p.bad:
		return s + fmt.Sprintf("%d VIOLATIONS", len(v.Violations))
	}
	return s + fmt.Sprintf("never more than %d at work", v.Peak)
}

func since(start int64, changes []change) []change {
	shifted := make([]change, len(changes))
	for i, c := range changes {
		shifted[i] = change{max(0, c.At-start), c.N}
	}
	return shifted
}
