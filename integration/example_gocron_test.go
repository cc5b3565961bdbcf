package integration

import (
	"context"
	"log"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/schedlock"
	"github.com/etcdkit/etcdkit/schedlock/gocronlock"
)

// A nightly job under gocron: all processes have the schedule, one of them runs each fire
// time.
func Example_gocron() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ran := make(chan struct{}, 100)
	var all []gocron.Scheduler
	var lk *schedlock.Locker
	stop := processes(ctx, func(sess *concurrency.Session) {
		var err error
		if lk, err = schedlock.New(sess, &schedlock.Options{Done: failed}); err != nil {
			log.Fatal(err)
		}
		nightly, err := gocronlock.NewCron[gocron.Lock](lk, gocron.NewDefaultCron(true)) // false without seconds
		if err != nil {
			log.Fatal(err)
		}
		s, err := gocron.NewScheduler()
		if err != nil {
			log.Fatal(err)
		}
		task := gocron.NewTask(func() { ran <- struct{}{} })         // nightly.Running("invoices") returns the run
		_, err = s.NewJob(gocron.CronJob("* * * * * *", true), task, // in a program: "0 3 * * *", false
			gocron.WithName("invoices"), gocron.WithCronImplementation(nightly), gocron.WithDistributedJobLocker(nightly))
		if err != nil {
			log.Fatal(err)
		}
		s.Start()
		all = append(all, s)
	})
	for range 3 {
		<-ran
	}
	pause(ctx, lk, "invoices")
	var stopped sync.WaitGroup
	for _, s := range all {
		stopped.Go(func() { _ = s.Shutdown() })
	}
	stop() // closes the sessions: asks runs to stop
	stopped.Wait()
	// Output:
	// the run before the last one: done
	// paused: the database is being moved
}
