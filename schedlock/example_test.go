package schedlock_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A plain ticker: Every makes the calls of all processes in one period one tick, whenever
// their tickers were started.
func ExampleLocker_Do() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	etcd, err := embedtest.New(ctx, nil) // here: your etcd
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()

	sess, err := concurrency.NewSession(ctx, etcd.Client(), "billing", nil) // one per process
	if err != nil {
		log.Fatal(err)
	}
	defer sess.Close(ctx)
	lk, err := schedlock.New(sess, nil)
	if err != nil {
		log.Fatal(err)
	}

	const period = 100 * time.Millisecond // here: a minute
	runs := 0
	sweep := func(ctx context.Context, r *schedlock.Run) error {
		runs++
		return nil // ctx ends if the run is lost
	}
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for runs < 3 {
		<-ticker.C
		if _, err := lk.Do(ctx, "sweep", sweep, schedlock.Every(period)); err != nil {
			log.Print(err)
		}
	}
	history, err := lk.History(ctx, "sweep")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(history), "runs, the last one:", history[0].State)
	// Output: 3 runs, the last one: done
}
