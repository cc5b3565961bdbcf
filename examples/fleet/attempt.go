package main

import (
	"cmp"
	"fmt"
	"slices"
)

// attempt is what one attempt at an execution did, gathered from the history.
// Times that never came are 0.
type attempt struct {
	Worker, Process, Execution, Number int

	Wait, Hold, Back, Done int64
	Deadline               int64 // of the permit, as last known
	Lost                   bool  // the permit had ended before the work did
	End                    ending
	Error                  string
	Leaked                 int
	Steps                  []stepTimes

	Stop, Cont, Kill int64
}

// stepTimes are the times of one step. End is 0 if it was cut short.
type stepTimes struct{ Begin, End, Deadline int64 }

// gather turns a history into attempts, ordered by their beginning. It also tells
// what in the history is no order of events at all.
func gather(events []event) (attempts []attempt, odd []string) {
	sorted := slices.Clone(events)
	slices.SortStableFunc(sorted, func(a, b event) int { return cmp.Compare(a.At, b.At) })
	current := map[int]*attempt{} // by worker
	var all []*attempt
	for _, e := range sorted {
		if e.Kind == evReady {
			continue
		}
		a := current[e.Worker]
		if e.Kind == evWait {
			a = &attempt{Worker: e.Worker, Process: e.Process, Execution: e.Execution, Number: e.Attempt, Wait: e.At}
			current[e.Worker] = a
			all = append(all, a)
			continue
		}
		if a == nil || a.Process != e.Process || a.Execution != e.Execution || a.Number != e.Attempt {
			odd = append(odd, fmt.Sprintf("worker %d, execution %d, attempt %d: %q outside of an attempt", e.Worker+1, e.Execution, e.Attempt, e.Kind))
			continue
		}
		if complaint := a.take(e); complaint != "" {
			odd = append(odd, a.name()+": "+complaint)
		}
	}
	for _, a := range all {
		attempts = append(attempts, *a)
	}
	return attempts, odd
}

// take adds an event to the attempt and tells what is wrong with its place.
func (a *attempt) take(e event) (complaint string) {
	switch e.Kind {
	case evHold:
		a.Hold = e.At
	case evBegin:
		a.Steps = append(a.Steps, stepTimes{Begin: e.At, Deadline: e.Deadline})
		a.Deadline = max(a.Deadline, e.Deadline)
		switch {
		case a.Hold == 0:
			return fmt.Sprintf("step %d begins without a permit", e.Step)
		case a.Back != 0:
			return fmt.Sprintf("step %d begins after the permit was given back", e.Step)
		case a.Kill != 0:
			return fmt.Sprintf("step %d begins in a dead process", e.Step)
		}
	case evEnd:
		if len(a.Steps) == 0 {
			return fmt.Sprintf("step %d ends that never began", e.Step)
		}
		a.Steps[len(a.Steps)-1].End = e.At
	case evBack:
		a.Back, a.Lost, a.Deadline = e.At, e.Lost, max(a.Deadline, e.Deadline)
	case evDone:
		a.Done, a.End, a.Error, a.Leaked = e.At, e.End, e.Error, e.Leaked
		if e.End == lost && a.Stop != 0 {
			a.End = paused
		}
	case evStop:
		a.Stop = e.At
	case evCont:
		a.Cont = e.At
	case evKill:
		a.Kill = e.At
		if a.End == "" {
			a.End = killed
		}
	}
	return ""
}

func (a *attempt) name() string {
	return fmt.Sprintf("worker %d, execution %d, attempt %d", a.Worker+1, a.Execution, a.Number)
}
