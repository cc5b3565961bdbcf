// Package work is what the benchmark measures: contenders, the work that they are given, and the
// groups of both.
package work

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/etcdkit/etcdkit/bench/measure"
	"github.com/etcdkit/etcdkit/bench/servers"
)

// Env is the servers that a cell works on.
type Env struct {
	Etcd  *servers.Etcd
	Redis *servers.Redis
	For   time.Duration // how long a cell is measured

	// counters returns what the servers of a cell have done so far; nil is those of Etcd.
	counters func(context.Context) (servers.Counters, error)
	client   bool // the processor time of this process counts as well
}

// used returns what the servers have done so far.
func (e *Env) used(ctx context.Context) (servers.Counters, error) {
	if e.counters != nil {
		return e.counters(ctx)
	}
	return e.Etcd.Counters(ctx)
}

var names atomic.Int64

// name returns a name that no cell had before: of a semaphore, a prefix, a key.
func name() string { return fmt.Sprintf("bench-%d-%d", time.Now().UnixNano(), names.Add(1)) }

// settle is how long the end of a cell's callers and sessions may take.
const settle = 20 * time.Second

// op is one operation of a caller. What it adds to the caller's samples is in the units of metrics.
type op func(ctx context.Context, s *caller) error

// caller collects what one caller has measured.
type caller struct {
	done   atomic.Int64
	on     *atomic.Bool // samples count
	waits  []time.Duration
	passes []time.Duration
}

func (c *caller) wait(d time.Duration) {
	if c.on.Load() {
		c.waits = append(c.waits, d)
	}
}

// drive has all callers repeat their operations. When ready returns, it measures for Env.For.
func (e *Env) drive(ctx context.Context, ops []op, ready func(context.Context) error) (measure.Sample, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var on atomic.Bool
	callers := make([]*caller, len(ops))
	ended := make(chan error, len(ops))
	for i, op := range ops {
		c := &caller{on: &on}
		callers[i] = c
		go func() {
			for {
				err := op(ctx, c)
				if ctx.Err() != nil {
					ended <- nil
					return
				}
				if err != nil {
					ended <- err
					return
				}
				if on.Load() {
					c.done.Add(1)
				}
			}
		}()
	}
	running := len(ops)
	sample, err := e.window(ctx, &on, callers, ready)
	cancel()
	late := time.After(settle)
	for ; running > 0; running-- {
		select {
		case failed := <-ended:
			if failed != nil {
				err = failed // also where ready has given up because of it
			}
		case <-late:
			return nil, fmt.Errorf("%d of %d callers did not end within %v", running, len(ops), settle)
		}
	}
	if err != nil {
		return nil, err
	}
	times(sample, callers)
	return sample, nil
}

// enough operations make a rate; a cell with fewer is measured for up to five times as long.
const enough = 30

func done(callers []*caller) (n int64) {
	for _, c := range callers {
		n += c.done.Load()
	}
	return n
}

// window waits for ready, and counts for Env.For.
func (e *Env) window(ctx context.Context, on *atomic.Bool, callers []*caller, ready func(context.Context) error) (measure.Sample, error) {
	if err := ready(ctx); err != nil {
		return nil, err
	}
	before, err := e.used(ctx)
	if err != nil {
		return nil, err
	}
	mine, known := processorTime()
	on.Store(true)
	begun := time.Now()
	err = after(e.For)(ctx)
	for ; err == nil && done(callers) < enough && time.Since(begun) < 5*e.For; err = after(e.For / 10)(ctx) {
	}
	on.Store(false)
	took := time.Since(begun)
	if err != nil {
		return nil, err
	}
	mineNow, _ := processorTime()
	after, err := e.used(ctx)
	if err != nil {
		return nil, err
	}
	done := done(callers)
	sample := measure.Sample{measure.Rate: float64(done) / took.Seconds()}
	fromEtcd(sample, after.Sub(before), done)
	if e.client && known && done > 0 {
		sample[measure.ClientCPU] = float64((mineNow - mine).Microseconds()) / float64(done)
		sample[measure.BothCPU] = sample[measure.ClientCPU] + sample[measure.ServerCPU]
	}
	return sample, nil
}

// fromEtcd adds what the servers did for each operation.
func fromEtcd(s measure.Sample, used servers.Counters, done int64) {
	if done > 0 {
		s[measure.Events] = used.Events / float64(done)
		s[measure.Reads] = used.Reads / float64(done)
		s[measure.ServerCPU] = float64(used.CPU.Microseconds()) / float64(done)
	}
}

// times adds the distributions of waits and of passes.
func times(s measure.Sample, callers []*caller) {
	var waits, passes []time.Duration
	for _, c := range callers {
		waits, passes = append(waits, c.waits...), append(passes, c.passes...)
	}
	if len(waits) > 0 {
		var sum time.Duration
		for _, w := range waits {
			sum += w
		}
		longest := measure.Quantile(waits, 1)
		s[measure.WaitMedian], s[measure.Wait99], s[measure.WaitLongest] = ms(measure.Median(waits)), ms(measure.Quantile(waits, 0.99)), ms(longest)
		if sum > 0 {
			s[measure.Unfair] = float64(longest) * float64(len(waits)) / float64(sum)
		}
	}
	if len(passes) > 0 {
		s[measure.PassMedian], s[measure.Pass99] = ms(measure.Median(passes)), ms(measure.Quantile(passes, 0.99))
	}
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// after is ready when that much time has passed.
func after(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(d):
			return nil
		}
	}
}
