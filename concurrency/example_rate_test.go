package concurrency_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
)

// At most 100 mails per second leave the fleet, and up to 20 at once after a quiet time.
func ExampleRateLimiter() {
	ctx := context.Background()
	sess, stop := session(ctx)
	defer stop()

	mails, err := concurrency.NewRateLimiter(sess, "mails", concurrency.Rate{PerSecond: 100, Burst: 20}, nil)
	if err != nil {
		log.Fatal(err)
	}
	for i := range 3 { // a job that may wait
		if err := mails.Wait(ctx); err != nil {
			log.Fatal(err)
		}
		fmt.Println("mail", i)
	}
	for { // a request that may not
		var exceeded *concurrency.RateExceededError
		if err := mails.Allow(); errors.As(err, &exceeded) {
			_ = exceeded.RetryAfter.Round(time.Second) // for the client's Retry-After
			break
		}
	}
	fmt.Println("come back later")
	// Output:
	// mail 0
	// mail 1
	// mail 2
	// come back later
}
