package chaos

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Operation is one thing that a process does, with all that is random about it
// already drawn.
type Operation struct {
	Name string
	// Do does it, on the process's present session, and records it. It returns
	// within a few seconds whatever happens. Its error is counted by its class
	// and says nothing about right or wrong: checkers do.
	Do func(ctx context.Context, p *Process) error
}

// workers is how many operations one process has under way at most. Waiting and
// holding count.
const workers = 4

// work has all processes do operations, at most rate a second together, until ctx
// ends, and returns when the last has returned.
func (env *Env) work(ctx context.Context, workloads []Workload, rate int) {
	ticket := time.NewTicker(time.Second / time.Duration(rate))
	defer ticket.Stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, p := range env.Processes {
		for n := range workers {
			r := env.Seed.Stream(fmt.Sprintf("worker %s/%d", p.Name, n))
			wg.Go(func() {
				for {
					op := workloads[r.IntN(len(workloads))].Plan(r)
					if r.IntN(300) == 0 {
						op = planReopen(r)
					}
					select {
					case <-ctx.Done():
						return
					case <-ticket.C:
					}
					if p.Session() == nil {
						_ = Sleep(ctx, 20*time.Millisecond)
						continue
					}
					err := op.Do(env.life, p)
					env.Stats.Add("operations", 1)
					env.tally(op.Name, err)
				}
			})
		}
	}
}
