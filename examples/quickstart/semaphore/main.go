// Semaphore shows a limit that all processes of a fleet share: three of ten
// goroutines render at a time, and would do so on ten machines.
//
//	go run ./examples/quickstart/semaphore
//	go run ./examples/quickstart/semaphore -endpoints 127.0.0.1:2379
//
// It prints how many rendered at most at the same time. On an etcd of yours it
// leaves one key, the limit.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/examples/internal/cluster"
)

func main() {
	if err := run(context.Background(), cluster.Flag()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, endpoints string) error {
	client, stop, err := cluster.Client(ctx, endpoints)
	if err != nil {
		return err
	}
	defer stop()
	opening, cancel := context.WithTimeout(ctx, 5*time.Second) // without an end to it, NewSession waits for etcd
	defer cancel()
	sess, err := concurrency.NewSession(opening, client, "quickstart", nil) // one per process
	if err != nil {
		return err
	}
	defer sess.Close(ctx)
	sem, err := concurrency.NewSemaphore(sess, "render", 3, nil)
	if err != nil {
		return err
	}

	var wg sync.WaitGroup
	var now, peak atomic.Int64
	errs := make([]error, 10)
	for i := range errs {
		wg.Go(func() {
			errs[i] = sem.Do(ctx, func(ctx context.Context, _ *concurrency.Permit) error {
				n := now.Add(1)
				defer now.Add(-1)
				for old := peak.Load(); n > old && !peak.CompareAndSwap(old, n); old = peak.Load() {
				}
				select { // the work, which ends when ctx does: then the permit is lost
				case <-time.After(50 * time.Millisecond):
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			})
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	fmt.Printf("10 rendered, at most %d at a time\n", peak.Load())
	return nil
}
