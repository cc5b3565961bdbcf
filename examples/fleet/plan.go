package main

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/etcdkit/etcdkit/examples/internal/child"
)

// ending is a way in which an attempt at an execution ends.
type ending string

// All endings. The last two are nobody's plan.
const (
	succeeded ending = "succeeded"
	failed    ending = "error"
	panicked  ending = "panic"
	stuck     ending = "held_too_long"
	killed    ending = "killed"
	paused    ending = "paused"
	lost      ending = "lost"
	stopped   ending = "stopped"
)

// labels are the endings in words.
var labels = map[ending]string{
	succeeded: "succeeded",
	failed:    "returned an error",
	panicked:  "panicked",
	stuck:     "held too long",
	killed:    "killed",
	paused:    "paused past its TTL",
	lost:      "lost its permit",
	stopped:   "stopped",
}

// endings in the order of the report.
var endings = []ending{succeeded, failed, panicked, stuck, killed, paused, lost, stopped}

// Shares of the executions that end badly at first, apart from those killed. At
// least one of each kind does.
const (
	failShare  = 0.06
	panicShare = 0.06
	stuckShare = 0.03
)

// Executions take this many steps.
const (
	leastSteps = 15
	mostSteps  = 45
)

// plan says what happens to each execution: how long it works, and in which ways
// its first attempts end. The attempt after those succeeds. It depends on the
// configuration alone, so that a run can be repeated; who does what when is up to
// the processes.
type plan struct {
	steps []int   // by execution
	ends  [][]job // by execution and attempt
}

func newPlan(c config) plan {
	r := rand.New(rand.NewPCG(c.seed, 0x666c656574))
	p := plan{steps: make([]int, c.executions), ends: make([][]job, c.executions)}
	for i := range p.steps {
		p.steps[i] = leastSteps + r.IntN(mostSteps-leastSteps+1)
	}
	count := func(share float64) int { return int(math.Round(share * float64(c.executions))) }
	// What takes long comes first, and not in the last executions: a run should
	// not end with everybody waiting for one.
	if child.CanPause {
		p.ends[c.executions/3] = append(p.ends[c.executions/3], job{End: paused, At: 3})
	}
	p.deal(r, stuck, max(1, count(stuckShare)), max(1, c.executions/3))
	p.deal(r, killed, count(c.kill), c.executions)
	p.deal(r, failed, max(1, count(failShare)), c.executions)
	p.deal(r, panicked, max(1, count(panicShare)), c.executions)
	return p
}

// deal spreads n bad ends over the first executions; one may get several.
func (p *plan) deal(r *rand.Rand, end ending, n, first int) {
	for i := range n {
		e := r.IntN(first)
		at := 1 + r.IntN(p.steps[e]*3/4)
		if end == killed && i%4 == 3 {
			at = 0 // dead waiters must not block the queue either
		}
		p.ends[e] = append(p.ends[e], job{End: end, At: at})
	}
}

// job returns what an attempt, from 1, of an execution, from 0, is to do.
func (p *plan) job(execution, attempt int) job {
	j := job{End: succeeded}
	if attempt <= len(p.ends[execution]) {
		j = p.ends[execution][attempt-1]
	}
	j.Execution, j.Attempt, j.Steps = execution, attempt, p.steps[execution]
	return j
}

// ideal is how many steps the plan takes if nothing goes wrong, when so many
// executions are at work at a time, in their order.
func (p *plan) ideal(atATime int) int {
	busy := make([]int, min(atATime, len(p.steps))) // until when each of them is
	for _, n := range p.steps {
		slices.Sort(busy)
		busy[0] += n
	}
	return slices.Max(busy)
}
