// Semaphore shows a limit that all processes of a fleet share: three of ten
// goroutines render at a time, and would do so on ten machines.
//
//	go run ./examples/quickstart/semaphore
//	go run ./examples/quickstart/semaphore -endpoints 127.0.0.1:2379
//
// It prints how many rendered at most at the same time.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/examples/internal/cluster"
)

func main() {
	endpoints := flag.String("endpoints", "", "etcd endpoints, separated by commas (default: an embedded etcd)")
	flag.Parse()
	if err := run(context.Background(), *endpoints); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, endpoints string) error {
	client, stop, err := cluster.Client(ctx, endpoints)
	if err != nil {
		return err
	}
	defer stop()
	sess, err := concurrency.NewSession(ctx, client, "quickstart", nil) // one per process
	if err != nil {
		return err
	}
	defer sess.Close(ctx)
	sem, err := concurrency.NewSemaphore(sess, "render", 3, nil)
	if err != nil {
		return err
	}

	var wg sync.WaitGroup
	var now, peak, done atomic.Int64
	for range 10 {
		wg.Go(func() {
			err := sem.Do(ctx, func(ctx context.Context, _ *concurrency.Permit) error {
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
			if err != nil {
				log.Print(err)
				return
			}
			done.Add(1)
		})
	}
	wg.Wait()
	fmt.Printf("%d of 10 rendered, at most %d at a time\n", done.Load(), peak.Load())
	return nil
}
