package work

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/etcdkit/etcdkit/bench/measure"
	"github.com/etcdkit/etcdkit/idempotency"
)

// Attempts is what an attempt in progress costs its process in memory: n of them begin and none ends. The memory of
// their callers does not count, since no goroutine waits for them.
func (e *Env) Attempts(id string, n int) measure.Cell {
	return measure.Cell{IDs: []string{id}, Run: func(ctx context.Context) ([]measure.Sample, error) {
		st, end, err := e.store(ctx)
		if err != nil {
			return nil, err
		}
		defer end()
		attempts := make([]*idempotency.Attempt, n)
		heap, stacks := memory()
		err = atOnce(n, func(i int) error {
			key := idempotency.Key{Op: "POST /payments", ID: fmt.Sprintf("in-progress-%08d", i)}
			a, _, err := st.Begin(ctx, key, "payload", idempotency.LikelyNew())
			if err == nil && a == nil {
				err = fmt.Errorf("%v has an outcome already", key)
			}
			attempts[i] = a
			return err
		})
		heapNow, stacksNow := memory()
		released := atOnce(n, func(i int) error {
			if attempts[i] == nil {
				return nil
			}
			return attempts[i].Release(context.WithoutCancel(ctx))
		})
		if err := errors.Join(err, released); err != nil {
			return nil, err
		}
		return []measure.Sample{{measure.Heap: max(0, heapNow-heap) / float64(n), measure.Stacks: max(0, stacksNow-stacks) / float64(n)}}, nil
	}}
}

// memory returns the bytes that are in use after a garbage collection. The second one frees what has a finalizer.
func memory() (heap, stacks float64) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc), float64(m.StackInuse)
}

// atOnce makes n calls, up to 256 at once, and none of a caller whose former one has failed.
func atOnce(n int, call func(i int) error) error {
	const callers = 256
	errs := make([]error, callers)
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := c; i < n && errs[c] == nil; i += callers {
				errs[c] = call(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
