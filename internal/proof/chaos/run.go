package chaos

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// Config says what to run.
type Config struct {
	Seed     Seed
	Duration time.Duration
	// Workloads are under test. Defaults to all.
	Workloads []Workload
	// Nemeses do harm. Defaults to all.
	Nemeses []Nemesis
	// Rate is the greatest number of operations per second. Defaults to 150:
	// more would starve the members' ticks on a small machine.
	Rate int
	// Log gets etcd's own log. Defaults to none.
	Log *zap.Logger
	// Progress gets lines about the progress of the run. Defaults to none.
	Progress func(format string, args ...any)
}

// All reports whether everything is under test, and all nemeses strike.
func (c Config) All() bool {
	return len(c.Nemeses) == len(Nemeses()) && len(c.Workloads) == len(Workloads())
}

// Workloads returns all workloads.
func Workloads() []Workload {
	return []Workload{NewSemaphores(), NewKept(), NewKeyed(), NewRates(), NewMutexes(), NewElections(), NewJobs(), NewRequests(20)}
}

// Result is what a run has left.
type Result struct {
	History *history.History
	Stats   map[string]int
}

// Run starts an Env, has its processes work while nemeses strike, mends it, and
// looks what is left. It returns an error only if there is no run to judge.
func Run(ctx context.Context, c Config) (*Result, error) {
	if c.Workloads == nil {
		c.Workloads = Workloads()
	}
	if c.Nemeses == nil {
		c.Nemeses = Nemeses()
	}
	if c.Rate == 0 {
		c.Rate = 150
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	if c.Progress == nil {
		c.Progress = func(string, ...any) {}
	}
	env, err := newEnv(ctx, c.Seed, c.Log, c.Progress)
	if err != nil {
		return nil, fmt.Errorf("chaos: start the cluster: %w", err)
	}
	defer env.close()
	for _, s := range c.Workloads {
		env.Queues = append(env.Queues, s.Queues(env.Space)...)
	}
	able := c.Nemeses[:0:0]
	for _, n := range c.Nemeses {
		if n.Needs == nil || n.Needs(env) {
			able = append(able, n)
		}
	}
	env.note("%d processes, authentication %v, %d nemeses", len(env.Processes), env.Auth, len(able))

	env.declare(c)
	watching, stop := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	watchers.Go(func() { env.watchLeaders(watching) })
	watchers.Go(func() { env.watchStalls(watching, "") })
	env.faultPhase(ctx, c, able)
	findings := env.quiescencePhase(ctx, c.Workloads)
	stop()
	watchers.Wait()
	env.close()
	for _, f := range slices.Concat(findings, leftGoroutines(), env.brackets.wrong()) {
		env.Recorder.Finding("left", false, f)
	}
	for _, d := range env.doubts() {
		env.Recorder.Finding("mend", true, d)
	}
	res := &Result{Stats: env.Stats.All()}
	env.count()
	if res.History, err = env.Recorder.History(); err != nil {
		return nil, err
	}
	return res, nil
}

// faultPhase is the part of the run in which workloads run and nemeses act. It returns when all
// harm is mended and all operations have returned.
func (env *Env) faultPhase(ctx context.Context, c Config, able []Nemesis) {
	ctx, cancel := context.WithTimeout(ctx, c.Duration)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { env.work(ctx, c.Workloads, c.Rate) })
	if len(able) > 0 {
		wg.Go(func() { env.harm(ctx, newSchedule(env.Seed, able)) })
	}
	wg.Go(func() {
		for Sleep(ctx, 5*time.Second) == nil {
			env.note("%d operations, %d unknown, %d sessions lost, %d leader changes, %d compactions",
				env.Stats.Get("operations"), env.Stats.Get("unknown"), env.Stats.Get("sessions lost"),
				env.Stats.Get("leader changes"), env.Stats.Get("compactions"))
		}
	})
}

func (env *Env) doubts() []string {
	env.mu.Lock()
	defer env.mu.Unlock()
	return slices.Clone(env.doubted)
}
