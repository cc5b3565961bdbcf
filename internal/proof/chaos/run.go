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
	// Subjects are under test. Defaults to all.
	Subjects []Subject
	// Nemeses do harm. Defaults to all.
	Nemeses []Nemesis
	// Rate is the greatest number of operations per second. Defaults to 150:
	// more would starve the members' ticks on a small machine.
	Rate int
	// Log gets etcd's own log. Defaults to none.
	Log *zap.Logger
	// Progress is told what goes on. Defaults to nobody.
	Progress func(format string, args ...any)
}

// All tells whether everything is under test, and all nemeses strike.
func (c Config) All() bool {
	return len(c.Nemeses) == len(Nemeses()) && len(c.Subjects) == len(Subjects())
}

// Subjects returns all subjects.
func Subjects() []Subject {
	return []Subject{NewSemaphores(), NewMutexes(), NewElections(), NewJobs(), NewRequests(20)}
}

// Result is what a run has left.
type Result struct {
	History *history.History
	Stats   map[string]int
}

// Run starts a world, has its processes work while nemeses strike, mends it, and
// looks what is left. It returns an error only if there is no run to judge.
func Run(ctx context.Context, c Config) (*Result, error) {
	if c.Subjects == nil {
		c.Subjects = Subjects()
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
	w, err := newWorld(ctx, c.Seed, c.Log, c.Progress)
	if err != nil {
		return nil, fmt.Errorf("chaos: start the world: %w", err)
	}
	defer w.close()
	for _, s := range c.Subjects {
		w.Gates = append(w.Gates, s.Gates(w.Space)...)
	}
	able := c.Nemeses[:0:0]
	for _, n := range c.Nemeses {
		if n.Needs == nil || n.Needs(w) {
			able = append(able, n)
		}
	}
	w.note("%d processes, authentication %v, %d nemeses", len(w.Processes), w.Auth, len(able))

	w.declare(c)
	watching, stop := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	watchers.Go(func() { w.watchLeaders(watching) })
	watchers.Go(func() { w.watchStalls(watching, "") })
	w.faultPhase(ctx, c, able)
	findings := w.quiescencePhase(ctx, c.Subjects)
	stop()
	watchers.Wait()
	w.close()
	for _, f := range append(findings, leftGoroutines()...) {
		w.Recorder.Finding("left", false, f)
	}
	for _, d := range w.doubts() {
		w.Recorder.Finding("mend", true, d)
	}
	res := &Result{Stats: w.Stats.All()}
	w.count()
	if res.History, err = w.Recorder.History(); err != nil {
		return nil, err
	}
	return res, nil
}

// faultPhase is the part of the run in which workloads run and nemeses act. It returns when all
// harm is mended and all operations have returned.
func (w *World) faultPhase(ctx context.Context, c Config, able []Nemesis) {
	ctx, cancel := context.WithTimeout(ctx, c.Duration)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { w.work(ctx, c.Subjects, c.Rate) })
	if len(able) > 0 {
		wg.Go(func() { w.harm(ctx, newSchedule(w.Seed, able)) })
	}
	wg.Go(func() {
		for sleep(ctx, 5*time.Second) == nil {
			w.note("%d operations, %d unknown, %d sessions lost, %d leader changes, %d compactions",
				w.Stats.Get("operations"), w.Stats.Get("unknown"), w.Stats.Get("sessions lost"),
				w.Stats.Get("leader changes"), w.Stats.Get("compactions"))
		}
	})
}

func (w *World) doubts() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.doubted)
}
