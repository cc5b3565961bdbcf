package concurrency_test

import (
	"context"
	"fmt"
	"log"
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
