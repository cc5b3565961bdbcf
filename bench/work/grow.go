package work

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/bench/measure"
	"github.com/etcdkit/etcdkit/bench/servers"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
)

// things are the things of which each takes memory, with how many of them are made to measure one.
var things = []struct {
	name string
	n    int
	grow func(ctx context.Context, e *Env, n int) (end func(), err error)
}{
	{Connected, 1000, moreSessions},
	{Held, 4000, morePermits},
	{Waiting, 4000, moreWaiters},
	{Semaphore, 10_000, moreNames},
	{Outcome, 20_000, moreOutcomes},
}

// Grows measures what each of n things takes of the servers' memory and of this process's.
func (e *Env) Grows(id string, n int, grow func(ctx context.Context, e *Env, n int) (end func(), err error)) measure.Cell {
	return measure.Cell{IDs: []string{id}, Run: func(ctx context.Context) ([]measure.Sample, error) {
		before, mine, err := e.content(ctx)
		if err != nil {
			return nil, err
		}
		closing, err := grow(ctx, e, n)
		defer closing()
		if err != nil {
			return nil, err
		}
		now, ours, err := e.content(ctx)
		if err != nil {
			return nil, err
		}
		each := func(grown float64) float64 { return max(0, grown) / float64(n) }
		return []measure.Sample{{
			measure.ServerHeap: each(now.Memory-before.Memory) / 1e3,
			measure.ClientHeap: each(ours-mine) / 1e3,
			measure.Watches:    each(now.Watches - before.Watches),
		}}, nil
	}}
}

// content forgets the history, so that only what is there counts, and returns the memory of servers and of this process.
func (e *Env) content(ctx context.Context) (c servers.Content, mine float64, err error) {
	client, err := e.Etcd.Process(0)
	if err != nil {
		return c, 0, err
	}
	r, err := client.Get(ctx, "now", clientv3.WithCountOnly())
	if err == nil {
		_, err = client.Compact(ctx, r.Header.Revision, clientv3.WithCompactPhysical())
	}
	if err != nil {
		return c, 0, err
	}
	if err := after(min(e.For, time.Second))(ctx); err != nil {
		return c, 0, err
	}
	c, err = e.Etcd.Content(ctx)
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return c, float64(m.HeapAlloc + m.StackInuse), err
}

func moreSessions(ctx context.Context, e *Env, n int) (func(), error) {
	_, closing, err := e.sessions(ctx, n)
	return closing, err
}

// morePermits holds permits of one semaphore in one session.
func morePermits(ctx context.Context, e *Env, n int) (func(), error) {
	sessions, closing, err := e.sessions(ctx, 1)
	if err != nil {
		return closing, err
	}
	sem, err := concurrency.NewSemaphore(sessions[0], "work", n, nil)
	if err != nil {
		return closing, err
	}
	errs := make([]error, n)
	each(n, func(i int) { _, errs[i] = sem.Acquire(ctx) })
	return closing, errors.Join(errs...)
}

// moreWaiters has callers of one process wait behind one holder.
func moreWaiters(ctx context.Context, e *Env, n int) (func(), error) {
	ctx, cancel := context.WithCancel(ctx)
	sessions, closing, err := e.sessions(ctx, 1)
	var wg sync.WaitGroup
	ended := func() {
		cancel()
		wg.Wait()
		closing()
	}
	if err != nil {
		return ended, err
	}
	sem, err := concurrency.NewSemaphore(sessions[0], "work", 1, nil)
	if err != nil {
		return ended, err
	}
	if _, err := sem.Acquire(ctx); err != nil {
		return ended, err
	}
	for range n {
		wg.Go(func() { _, _ = sem.Acquire(ctx) })
	}
	return ended, e.inQueue(ctx, sessions[0].NamespacePrefix()+"semaphore/work/queue/", int64(n))
}

// moreNames uses semaphores once, each of a name of its own, as of tenants that come and go. The values are dropped.
func moreNames(ctx context.Context, e *Env, n int) (func(), error) {
	sessions, closing, err := e.sessions(ctx, 1)
	if err != nil {
		return closing, err
	}
	errs := make([]error, n)
	each(n, func(i int) {
		sem, err := concurrency.NewSemaphore(sessions[0], fmt.Sprint("tenant-", i), 1, nil)
		if err == nil {
			err = sem.Do(ctx, func(context.Context, *concurrency.Permit) error { return nil })
		}
		errs[i] = err
	})
	return closing, errors.Join(errs...)
}

// moreOutcomes records outcomes, without this process's own memory of them.
func moreOutcomes(ctx context.Context, e *Env, n int) (func(), error) {
	sessions, closing, err := e.sessions(ctx, 1)
	if err != nil {
		return closing, err
	}
	st, err := idempotency.NewStore(sessions[0], "work", &idempotency.Options{SingleTenant: true, CacheBytes: -1})
	if err != nil {
		return closing, err
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	const callers = 256
	errs := make([]error, callers)
	for i := range callers {
		wg.Go(func() {
			for k := next.Add(1); k <= int64(n) && errs[i] == nil; k = next.Add(1) {
				_, errs[i] = idempotency.Do(ctx, st, idempotency.Key{Op: "POST /payments", ID: fmt.Sprintf("grow-%08d", k)}, "payload", once)
			}
		})
	}
	wg.Wait()
	return closing, errors.Join(errs...)
}
