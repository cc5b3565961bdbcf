package work

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/bench/measure"
)

// Crowd is work for a lock: processes whose callers acquire, hold and release without end.
type Crowd struct {
	Processes int
	Callers   int // of each process; defaults to 1
	Limit     int
	Hold      time.Duration
}

// Cell has a crowd work with a lock.
func (e *Env) Cell(id string, l Lock, w Crowd) measure.Cell {
	return measure.Cell{IDs: []string{id}, Run: func(ctx context.Context) ([]measure.Sample, error) {
		s, err := e.crowd(ctx, l, w)
		return []measure.Sample{s}, err
	}}
}

func (e *Env) crowd(ctx context.Context, l Lock, w Crowd) (measure.Sample, error) {
	name := name()
	locks, end, err := e.open(ctx, l, name, w.Processes, w.Limit)
	defer end()
	if err != nil {
		return nil, err
	}
	var released atomic.Int64             // when, at limit 1, as nanoseconds since begun
	var granted, held, holds atomic.Int64 // held is a sum of nanoseconds
	begun := time.Now()
	hold := func(acquire acquire) op {
		return func(ctx context.Context, c *caller) error {
			asked := time.Now()
			release, err := acquire(ctx)
			if err != nil {
				return err
			}
			now := time.Now()
			if at := released.Swap(0); at != 0 && w.Limit == 1 && c.on.Load() && time.Duration(at) > asked.Sub(begun) {
				c.passes = append(c.passes, now.Sub(begun)-time.Duration(at)) // it waited already
			}
			c.wait(now.Sub(asked))
			granted.Add(1)
			if w.Hold > 0 {
				time.Sleep(w.Hold)
				if c.on.Load() { // a sleep takes longer than it is asked to, the more the shorter it is
					held.Add(int64(time.Since(now)))
					holds.Add(1)
				}
			}
			released.Store(int64(time.Since(begun)))
			return release(context.WithoutCancel(ctx))
		}
	}
	var ops []op
	for _, acquire := range locks {
		for range max(w.Callers, 1) {
			ops = append(ops, hold(acquire))
		}
	}
	s, err := e.drive(ctx, ops, e.queued(l, name, w, &granted))
	if err != nil {
		return nil, err
	}
	if l.queue == nil {
		withoutEtcd(s)
	}
	if n := holds.Load(); n > 0 {
		s[measure.Capacity] = capacity(s[measure.Rate], time.Duration(held.Load()/n), w.Limit)
	}
	return s, nil
}

// capacity is the part of the permits that is in use. A hold that has begun before the window counts
// whole, so that few long ones would come to more than all.
func capacity(rate float64, held time.Duration, limit int) float64 {
	return min(1, rate*held.Seconds()/float64(limit))
}

// open opens the lock in each process. end closes what was opened, also after an error.
func (e *Env) open(ctx context.Context, l Lock, name string, processes, limit int) (locks []acquire, end func(), err error) {
	locks = make([]acquire, processes)
	ends, errs := make([]func(), processes), make([]error, processes)
	each := func(fn func(i int)) {
		var wg sync.WaitGroup
		some := make(chan struct{}, 64)
		for i := range processes {
			some <- struct{}{}
			wg.Go(func() { fn(i); <-some })
		}
		wg.Wait()
	}
	each(func(i int) { locks[i], ends[i], errs[i] = l.open(ctx, e, i, name, limit) })
	end = func() {
		each(func(i int) {
			if ends[i] != nil {
				ends[i]()
			}
		})
	}
	for _, err := range errs {
		if err != nil {
			return nil, end, err
		}
	}
	return locks, end, nil
}

// withoutEtcd leaves out what etcd did, where the contender does not use it.
func withoutEtcd(s measure.Sample) {
	for _, m := range []measure.Metric{measure.Events, measure.Reads, measure.ServerCPU} {
		delete(s, m)
	}
}

// queued is ready when nine of ten of the processes that must wait have their key in the queue, and a
// few permits were granted after that.
func (e *Env) queued(l Lock, name string, w Crowd, granted *atomic.Int64) func(context.Context) error {
	return func(ctx context.Context) error {
		if l.queue != nil {
			if err := e.inQueue(ctx, l.queue(name), int64((w.Processes-w.Limit)*9/10)); err != nil {
				return err
			}
		}
		before := granted.Load()
		for late := time.Now().Add(5 * time.Second); granted.Load() < before+10 && time.Now().Before(late); {
			if err := after(10 * time.Millisecond)(ctx); err != nil {
				return err
			}
		}
		return after(min(e.For/2, 300*time.Millisecond))(ctx)
	}
}

// inQueue returns when there are that many keys below a prefix.
func (e *Env) inQueue(ctx context.Context, prefix string, least int64) error {
	client, err := e.Etcd.Process(0)
	if err != nil {
		return err
	}
	for late := time.Now().Add(settle); ; {
		r, err := client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly(), clientv3.WithSerializable())
		if err != nil || r.Count >= least {
			return err
		}
		if time.Now().After(late) {
			return fmt.Errorf("%d of %d processes are queued in %s after %v", r.Count, least, prefix, settle)
		}
		if err := after(20 * time.Millisecond)(ctx); err != nil {
			return err
		}
	}
}

// Repeated measures an operation that is much shorter than a look at the clock, in batches.
func (e *Env) Repeated(id string, l Lock) measure.Cell {
	return measure.Cell{IDs: []string{id}, Run: func(ctx context.Context) ([]measure.Sample, error) {
		opened, end, err := e.open(ctx, l, name(), 1, 10)
		defer end()
		if err != nil {
			return nil, err
		}
		const each = 200
		var before, after runtime.MemStats
		var took []time.Duration // of one operation, each the mean of a batch
		runtime.ReadMemStats(&before)
		for until := time.Now().Add(e.For); len(took) < 5 || time.Now().Before(until); {
			begun := time.Now()
			for range each {
				release, err := opened[0](ctx)
				if err == nil {
					err = release(ctx)
				}
				if err != nil {
					return nil, err
				}
			}
			took = append(took, time.Since(begun)/each)
		}
		runtime.ReadMemStats(&after)
		return []measure.Sample{{
			measure.EachTime: float64(measure.Median(took).Nanoseconds()) / 1e3,
			measure.Allocs:   float64(after.Mallocs-before.Mallocs) / float64(each*len(took)),
		}}, nil
	}}
}

// InTurn measures operations one at a time, each after the other, so that each has the same machine.
func (e *Env) InTurn(ids []string, locks []Lock) measure.Cell {
	return measure.Cell{IDs: ids, Run: func(ctx context.Context) ([]measure.Sample, error) {
		var acquires []acquire
		for _, l := range locks {
			opened, end, err := e.open(ctx, l, name(), 1, 10)
			defer end()
			if err != nil {
				return nil, err
			}
			acquires = append(acquires, opened[0])
		}
		took := make([][]time.Duration, len(locks))
		one := func(i int) (time.Duration, error) {
			begun := time.Now()
			release, err := acquires[i](ctx)
			if err == nil {
				err = release(ctx)
			}
			return time.Since(begun), err
		}
		for n, until := -5, time.Now().Add(e.For); n < 20 || time.Now().Before(until); n++ {
			for i := range locks {
				d, err := one((i + max(n, 0)) % len(locks))
				if err != nil {
					return nil, fmt.Errorf("%s: %w", locks[i].Name, err)
				}
				if n >= 0 {
					at := (i + n) % len(locks)
					took[at] = append(took[at], d)
				}
			}
		}
		samples := make([]measure.Sample, len(locks))
		for i := range samples {
			samples[i] = measure.Sample{measure.EachTime: float64(measure.Median(took[i]).Nanoseconds()) / 1e3}
		}
		return samples, nil
	}}
}
