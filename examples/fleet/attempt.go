package main

import (
	"cmp"
	"fmt"
	"slices"
)

// attempt is one attempt at an execution, as the history has it. The time of an event that
// did not happen is 0.
type attempt struct {
	Worker, Process, Execution, Number int

	Wait, Hold, Releasing, Done int64
	Deadline                    int64 // of the permit, as last known
	Lost                        bool  // the permit ended before the work
	End                         ending
	Error                       string
	Leaked                      int
	Steps                       []stepTimes

	Stop, Cont, Kill int64
}

// stepTimes are the times of one step. End is 0 if the step did not end.
type stepTimes struct{ Begin, End, Deadline int64 }

// gather returns the attempts of a history in the order of their start, and a description of
// each event that cannot happen at its place.
func gather(events []event) (attempts []attempt, misplaced []string) {
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
			misplaced = append(misplaced, fmt.Sprintf("worker %d, execution %d, attempt %d: %q outside of an attempt", e.Worker+1, e.Execution, e.Attempt, e.Kind))
			continue
		}
		if problem := a.take(e); problem != "" {
			misplaced = append(misplaced, a.name()+": "+problem)
		}
	}
	for _, a := range all {
		attempts = append(attempts, *a)
	}
	return attempts, misplaced
}

// take adds an event to the attempt. It returns a problem if the event cannot happen there.
func (a *attempt) take(e event) (problem string) {
	switch e.Kind {
	case evHold:
		a.Hold = e.At
	case evBegin:
		a.Steps = append(a.Steps, stepTimes{Begin: e.At, Deadline: e.Deadline})
		a.Deadline = max(a.Deadline, e.Deadline)
		switch {
		case a.Hold == 0:
			return fmt.Sprintf("step %d begins without a permit", e.Step)
		case a.Releasing != 0:
			return fmt.Sprintf("step %d begins after the release of the permit", e.Step)
		case a.Kill != 0:
			return fmt.Sprintf("step %d begins in a dead process", e.Step)
		}
	case evEnd:
		if len(a.Steps) == 0 {
			return fmt.Sprintf("step %d ends without a begin", e.Step)
		}
		a.Steps[len(a.Steps)-1].End = e.At
	case evReleasing:
		a.Releasing, a.Lost, a.Deadline = e.At, e.Lost, max(a.Deadline, e.Deadline)
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
