package concurrency_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
)

// A process that needs the same semaphore for one short call after the other keeps its permit in
// between, as long as no request waits. Each call has a permit of its own.
func ExampleSemaphoreOptions_keep() {
	ctx := context.Background()
	sess, stop := session(ctx)
	defer stop()

	sem, err := concurrency.NewSemaphore(sess, "thumbnails", 10, &concurrency.SemaphoreOptions{Keep: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	for page := range 3 {
		err := sem.Do(ctx, func(context.Context, *concurrency.Permit) error {
			fmt.Println("page", page)
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// page 0
	// page 1
	// page 2
}

// The callers of a process pass their permits on, for a bounded time, also while other processes wait:
// the limit is used while etcd is asked.
func ExampleSemaphoreOptions_handover() {
	ctx := context.Background()
	sess, stop := session(ctx)
	defer stop()

	sem, err := concurrency.NewSemaphore(sess, "thumbnails", 2, &concurrency.SemaphoreOptions{Handover: 20 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	var pages sync.WaitGroup
	var done atomic.Int32
	for range 100 {
		pages.Go(func() {
			if err := sem.Do(ctx, func(context.Context, *concurrency.Permit) error {
				done.Add(1)
				return nil
			}); err != nil {
				log.Fatal(err)
			}
		})
	}
	pages.Wait()
	fmt.Println("pages", done.Load())
	// Output: pages 100
}
