package concurrency_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
)

// A function with at most ten calls at a time in all processes, each of which waits for at most four
// seconds: what an annotation such as @DistributedConcurrencyLimit does elsewhere.
func ExampleLimit() {
	ctx := context.Background()
	sess, stop := session(ctx)
	defer stop()

	sem, err := concurrency.NewSemaphore(sess, "open-api-chat", 10, nil)
	if err != nil {
		log.Fatal(err)
	}
	sendMessage := concurrency.Limit(concurrency.Single(sem), func(string) string { return "" }, chat, concurrency.Wait(4*time.Second))

	answer, err := sendMessage(ctx, "hello")
	switch {
	case errors.Is(err, concurrency.ErrFull):
		fmt.Println("ten calls are running, and none has ended within four seconds")
	case errors.Is(err, concurrency.ErrUnavailable):
		fmt.Println("etcd does not answer: the call was not made")
	case err != nil:
		log.Fatal(err)
	}
	fmt.Println(answer)
	// Output: you said hello
}

// chat is limited: its ctx ends if its permit is lost.
func chat(_ context.Context, message string) (string, error) { return "you said " + message, nil }

// Each tenant has at most two calls at a time, and all tenants together at most three. Operators change
// the limit of one tenant for the whole fleet.
func ExampleKeyedLimiter() {
	ctx := context.Background()
	sess, stop := session(ctx)
	defer stop()

	lim, err := concurrency.NewKeyedLimiter(sess, "api", 2, &concurrency.KeyedLimiterOptions{Total: 3})
	if err != nil {
		log.Fatal(err)
	}
	var held []*concurrency.Permit // to fill the limiter; usually Do releases
	defer func() {
		for _, p := range held {
			_ = p.Release(ctx)
		}
	}()
	call := func(tenant string) {
		p, err := lim.Key(tenant).TryAcquire(ctx)
		var full *concurrency.FullError
		switch {
		case errors.As(err, &full):
			fmt.Println(tenant, "is refused by the limit of the", full.Level)
		case err != nil:
			log.Fatal(err)
		default:
			held = append(held, p)
			fmt.Println(tenant, "runs")
		}
	}
	call("acme")
	call("acme")
	call("acme")
	call("globex")
	call("globex")
	if err := lim.Total().SetLimit(ctx, 4); err != nil {
		log.Fatal(err)
	}
	if err := lim.Key("acme").SetLimit(ctx, 3); err != nil {
		log.Fatal(err)
	}
	call("acme")
	// Output:
	// acme runs
	// acme runs
	// acme is refused by the limit of the key
	// globex runs
	// globex is refused by the limit of the total
	// acme runs
}
