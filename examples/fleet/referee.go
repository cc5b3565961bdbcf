package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// verdict is what the referee has seen. The limit held if the peak is not above
// it and there are no violations.
type verdict struct {
	Peak       int
	PeakAt     int64
	Violations []string
	// Late counts the steps that were in flight when their process was
	// stopped, and ended after it was continued. No library can prevent those.
	Late int
	// Work has the spans of time in which somebody worked under a permit, and
	// Count how many did so at a time.
	Work  []span
	Count []change
}

// span is a time of work under a permit.
type span struct {
	From, To int64
	Attempt  int // index into the attempts
}

// change says how many there are from a time on.
type change struct {
	At int64
	N  int
}

// judge measures a run from what the workers did, and knows nothing of etcd.
//
// An attempt works from when it had its permit until it was about to give it
// back, or until its process was dead. If it lost the permit it works until the
// loss, and longer if a step was in flight then. A stopped process does not work;
// when it is continued, the step in flight may end, and is counted as late. A
// step that begins later counts as work again. A step that begins after the
// permit's deadline, as its own worker knew it, is a violation, whether or not
// the limit was exceeded at that time.
func judge(events []event, limit int) verdict {
	attempts, odd := gather(events)
	v := verdict{Violations: odd}
	var over int64
	for _, e := range events {
		over = max(over, e.At)
	}
	for i, a := range attempts {
		for n, s := range a.Steps {
			if s.Begin > s.Deadline {
				v.Violations = append(v.Violations, fmt.Sprintf("%s: its step no. %d begins %v after the permit's deadline",
					a.name(), n+1, time.Duration(s.Begin-s.Deadline).Round(time.Microsecond)))
			}
		}
		if a.Leaked > 0 {
			v.Violations = append(v.Violations, fmt.Sprintf("%s: its permit stands in etcd after it ended", a.name()))
		}
		for _, s := range a.spans(over) {
			s.Attempt = i
			v.Work = append(v.Work, s)
		}
		if a.late() {
			v.Late++
		}
	}
	v.Count = count(v.Work)
	for _, c := range v.Count {
		if c.N > v.Peak {
			v.Peak, v.PeakAt = c.N, c.At
		}
	}
	if v.Peak > limit {
		v.Violations = append(v.Violations, fmt.Sprintf("%d worked at the same time under a limit of %d: %s",
			v.Peak, limit, v.who(attempts, v.PeakAt)))
	}
	return v
}

// who names those at work at a time, those who had begun last at the end.
func (v *verdict) who(attempts []attempt, at int64) string {
	var names []string
	slices.SortFunc(v.Work, func(a, b span) int { return cmp.Compare(a.From, b.From) })
	for _, s := range v.Work {
		if s.From <= at && at < s.To {
			names = append(names, fmt.Sprintf("%s (%v of %v)", attempts[s.Attempt].name(), time.Duration(at-s.From).Round(time.Millisecond), time.Duration(s.To-s.From).Round(time.Millisecond)))
		}
	}
	return strings.Join(names, "; ")
}

// spans returns the one time of work of an attempt, or the two around a pause. An
// attempt of which no end is known works until all is over.
func (a *attempt) spans(over int64) []span {
	if a.Hold == 0 && len(a.Steps) == 0 {
		return nil
	}
	from := a.Hold
	if from == 0 { // it never got a permit and worked all the same
		from = a.Steps[0].Begin
	}
	to := a.Back
	switch {
	case a.Lost && a.Deadline != 0:
		to = min(a.Back, a.Deadline)
	case a.Back == 0 && a.Kill != 0:
		to = a.Kill
	case a.Back == 0:
		to = over
	}
	if a.Stop == 0 || a.Stop >= max(to, a.lastStep()) {
		return []span{{From: from, To: max(to, a.lastStep(), from)}}
	}
	// A stop takes a moment to arrive.
	stop := a.Stop
	for _, s := range a.Steps {
		for _, t := range []int64{s.Begin, s.End} {
			if a.Cont == 0 || t < a.Cont {
				stop = max(stop, t)
			}
		}
	}
	spans := []span{{From: from, To: stop}}
	again := a.Cont != 0 && !a.Lost && to > a.Cont // the permit outlived the pause
	for _, s := range a.Steps {
		again = again || a.Cont != 0 && s.Begin > a.Cont
	}
	if again {
		spans = append(spans, span{From: a.Cont, To: max(to, a.lastStep(), a.Cont)})
	}
	return spans
}

// lastStep is the last time at which a step is known to have been in work.
func (a *attempt) lastStep() (t int64) {
	for _, s := range a.Steps {
		t = max(t, s.Begin, s.End)
	}
	return t
}

// late tells whether a step was in flight during a pause.
func (a *attempt) late() bool {
	for _, s := range a.Steps {
		if a.Stop != 0 && a.Cont != 0 && s.Begin <= a.Cont && s.End > a.Cont {
			return true
		}
	}
	return false
}

// count tells how many spans there are at a time. A span does not contain its
// end.
func count(spans []span) []change {
	var moves []change
	for _, s := range spans {
		moves = append(moves, change{s.From, 1}, change{s.To, -1})
	}
	slices.SortFunc(moves, func(a, b change) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.N, b.N)) })
	var changes []change
	n := 0
	for i, m := range moves {
		n += m.N
		if i+1 == len(moves) || moves[i+1].At != m.At {
			changes = append(changes, change{m.At, n})
		}
	}
	return changes
}
