package integration

import (
	"context"
	"log"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A nightly job under robfig/cron: all processes have the schedule, one of them runs each
// fire time.
func Example_robfig() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	schedule, err := seconds.Parse("* * * * * *") // in a program: cron.ParseStandard("0 3 * * *")
	if err != nil {
		log.Fatal(err)
	}
	ran := make(chan struct{}, 100)
	var all []*cron.Cron
	var lk *schedlock.Locker
	stop := processes(ctx, func(sess *concurrency.Session) {
		if lk, err = schedlock.New(sess, &schedlock.Options{Done: failed}); err != nil {
			log.Fatal(err)
		}
		job, err := lk.Job("invoices", schedule, func(ctx context.Context, r *schedlock.Run) error {
			ran <- struct{}{}
			return nil // ctx ends if the run is lost; r.Tick() is the fire time
		}, schedlock.AtMost(time.Hour))
		if err != nil {
			log.Fatal(err)
		}
		c := cron.New()
		c.Schedule(job, job) // the job is the schedule too, so that it knows its fire times
		c.Start()
		all = append(all, c)
	})
	for range 3 {
		<-ran
	}
	pause(ctx, lk, "invoices")
	var stopped []context.Context
	for _, c := range all {
		stopped = append(stopped, c.Stop()) // begins no further call
	}
	stop() // closes the sessions: ends calls that wait for another process's run, and asks runs to stop
	for _, calls := range stopped {
		<-calls.Done()
	}
	// Output:
	// the run before the last one: done
	// paused: the database is being moved
}
