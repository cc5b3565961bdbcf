package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// verdict is the result of the referee. The limit held if the peak is at most the limit and
// there are no violations.
type verdict struct {
	Peak       int
	PeakAt     int64
	Violations []string
	// Late is the number of steps that were in progress when their process was stopped and
	// that ended after it was continued. No library can prevent them.
	Late int
	// Work has the spans in which a worker was working under a permit, and Count the number
	// of workers working at the same time.
	Work  []span
	Count []change
}

// span is a span of time in which a worker was working under a permit.
type span struct {
	From, To int64
	Attempt  int // index into the attempts
}

// change is the number from a time on, until the next change.
type change struct {
	At int64
	N  int
}

// judge measures a run by the events of the workers, without reading etcd.
//
// An attempt is working from the grant of its permit until just before the release, or until
// its process was killed. If the permit was lost, the attempt is working until the loss, or
// until the end of a step that was in progress at the loss. A stopped process is not working.
// When it is continued, the step that was in progress may end and counts as late; a step that
// begins later counts as work again. A step that begins after the permit's deadline, as its
// worker knew it, is a violation, even if the limit was not exceeded at that time.
func judge(events []event, limit int) verdict {
	attempts, misplaced := gather(events)
	v := verdict{Violations: misplaced}
	var over int64
	for _, e := range events {
		over = max(over, e.At)
	}
	for i, a := range attempts {
		for n, s := range a.Steps {
			if s.Begin > s.Deadline {
				v.Violations = append(v.Violations, fmt.Sprintf("%s: step %d begins %v after the permit's deadline",
					a.name(), n+1, time.Duration(s.Begin-s.Deadline).Round(time.Microsecond)))
			}
		}
		if a.Leaked > 0 {
			v.Violations = append(v.Violations, fmt.Sprintf("%s: its request is still in etcd after it ended", a.name()))
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
		v.Violations = append(v.Violations, fmt.Sprintf("%d were working at the same time under a limit of %d: %s",
			v.Peak, limit, v.workers(attempts, v.PeakAt)))
	}
	return v
}

// workers returns the names of the attempts that were working at a time, in the order of their
// start.
func (v *verdict) workers(attempts []attempt, at int64) string {
	var names []string
	slices.SortFunc(v.Work, func(a, b span) int { return cmp.Compare(a.From, b.From) })
	for _, s := range v.Work {
		if s.From <= at && at < s.To {
			names = append(names, fmt.Sprintf("%s (%v of %v)", attempts[s.Attempt].name(), time.Duration(at-s.From).Round(time.Millisecond), time.Duration(s.To-s.From).Round(time.Millisecond)))
		}
	}
	return strings.Join(names, "; ")
}

// spans returns the span in which an attempt was working, or the two around a pause. An attempt
// without a known end was working until the end of the run.
func (a *attempt) spans(over int64) []span {
	if a.Hold == 0 && len(a.Steps) == 0 {
		return nil
	}
	from := a.Hold
	if from == 0 { // it worked without a permit
		from = a.Steps[0].Begin
	}
	to := a.Releasing
	switch {
	case a.Lost && a.Deadline != 0:
		to = min(a.Releasing, a.Deadline)
	case a.Releasing == 0 && a.Kill != 0:
		to = a.Kill
	case a.Releasing == 0:
		to = over
	}
	if a.Stop == 0 || a.Stop >= max(to, a.lastStep()) {
		return []span{{From: from, To: max(to, a.lastStep(), from)}}
	}
	// The stop takes effect after a.Stop: an event before the pause ends may be later.
	stop := a.Stop
	for _, s := range a.Steps {
		for _, t := range []int64{s.Begin, s.End} {
			if a.Cont == 0 || t < a.Cont {
				stop = max(stop, t)
			}
		}
	}
	spans := []span{{From: from, To: stop}}
	again := a.Cont != 0 && !a.Lost && to > a.Cont // the permit was valid after the pause
	for _, s := range a.Steps {
		again = again || a.Cont != 0 && s.Begin > a.Cont
	}
	if again {
		spans = append(spans, span{From: a.Cont, To: max(to, a.lastStep(), a.Cont)})
	}
	return spans
}

// lastStep returns the last time at which a step is known to have been in progress.
func (a *attempt) lastStep() (t int64) {
	for _, s := range a.Steps {
		t = max(t, s.Begin, s.End)
	}
	return t
}

// late reports whether a step was in progress during a pause and ended after it.
func (a *attempt) late() bool {
	for _, s := range a.Steps {
		if a.Stop != 0 && a.Cont != 0 && s.Begin <= a.Cont && s.End > a.Cont {
			return true
		}
	}
	return false
}

// count returns how many spans contain a time. A span does not contain its end.
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
