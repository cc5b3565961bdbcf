package main

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/etcdkit/etcdkit/internal/examples/child"
)

// ending is how an attempt at an execution ends.
type ending string

// All endings. The last two are never planned.
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

// labels are the endings as printed.
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

// Shares of the executions whose first attempts fail in these ways, at least one each. The
// share of killed processes is a flag.
const (
	failShare  = 0.06
	panicShare = 0.06
	stuckShare = 0.03
)

// The number of steps of an execution.
const (
	leastSteps = 15
	mostSteps  = 45
)

// plan has the number of steps of each execution, and the ends of its first attempts. The
// attempt after those succeeds. The plan depends on the configuration alone, so that a run
// can be repeated. Which process runs which attempt, and when, is not planned.
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
	// Ends that take long are in the first third: a run should not end with all workers
	// waiting for one.
	if child.CanPause {
		p.ends[c.executions/3] = append(p.ends[c.executions/3], job{End: paused, At: 3})
	}
	p.deal(r, stuck, max(1, count(stuckShare)), max(1, c.executions/3))
	p.deal(r, killed, count(c.kill), c.executions)
	p.deal(r, failed, max(1, count(failShare)), c.executions)
	p.deal(r, panicked, max(1, count(panicShare)), c.executions)
	return p
}

// deal distributes n ends over the first executions. One execution may get several.
func (p *plan) deal(r *rand.Rand, end ending, n, first int) {
	for i := range n {
		e := r.IntN(first)
		at := 1 + r.IntN(p.steps[e]*3/4)
		if end == killed && i%4 == 3 {
			at = 0 // killed while it waits: its request must not block the queue
		}
		p.ends[e] = append(p.ends[e], job{End: end, At: at})
	}
}

// job returns the job of an attempt, counted from 1, at an execution, counted from 0.
func (p *plan) job(execution, attempt int) job {
	j := job{End: succeeded}
	if attempt <= len(p.ends[execution]) {
		j = p.ends[execution][attempt-1]
	}
	j.Execution, j.Attempt, j.Steps = execution, attempt, p.steps[execution]
	return j
}

// ideal returns how many steps the plan takes without failures if that many executions run at
// the same time, in their order.
func (p *plan) ideal(atATime int) int {
	busy := make([]int, min(atATime, len(p.steps))) // the step until which each is busy
	for _, n := range p.steps {
		slices.Sort(busy)
		busy[0] += n
	}
	return slices.Max(busy)
}
