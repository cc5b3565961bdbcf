package concurrency_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/observe"
)

// Hooks see the end of each call with its outcome: a permit that is granted, held and released, and a try
// that is refused meanwhile.
func ExampleSessionOptions_hooks() {
	ctx := context.Background()
	etcd, err := embedtest.New(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	client, err := etcd.Dial(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	sess, err := concurrency.NewSession(ctx, client.Client, "media", &concurrency.SessionOptions{
		Hooks: []observe.Hooks{{
			Start: func(ctx context.Context, c observe.Call) (context.Context, func(observe.Outcome)) {
				return ctx, func(o observe.Outcome) {
					fmt.Println(strings.TrimSpace(fmt.Sprintf("%s %s %q: %s %s", c.Op, c.Kind, c.Name, o.Result, o.Reason)))
				}
			},
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer sess.Close(ctx)
	images, err := concurrency.NewSemaphore(sess, "images", 1, nil)
	if err != nil {
		log.Fatal(err)
	}
	permit, err := images.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := images.TryAcquire(ctx); err != nil {
		fmt.Println(err)
	}
	if err := permit.Release(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// acquire semaphore "images": granted
	// acquire semaphore "images": refused full
	// acquire "images": no permit is free: 1 of 1 in use, 0 waiting
	// hold semaphore "images": released
	// release semaphore "images": released
}
