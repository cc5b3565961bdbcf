package integration

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/robfig/cron/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

// processes starts an etcd, and two processes played by two sessions.
func processes(ctx context.Context, use func(*concurrency.Session)) (stop func()) {
	etcd, err := embedtest.New(ctx, nil) // in a program: clientv3.New
	if err != nil {
		log.Fatal(err)
	}
	var stops []func()
	for range 2 {
		sess, err := concurrency.NewSession(ctx, etcd.Client(), "billing", nil) // one per process
		if err != nil {
			log.Fatal(err)
		}
		stops = append(stops, func() { _ = sess.Close(ctx) })
		use(sess)
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
		_ = etcd.Close()
	}
}

// failed is for Options.Done: the cron libraries drop what a call returns. In a program, count
// and alert.
func failed(res schedlock.Result, err error) {
	if err != nil && !errors.Is(err, schedlock.ErrClosed) {
		log.Printf("job %q: %v: %v", res.Job, res.Outcome, err)
	}
}

// report pauses the job, and prints its history: the same in every process.
func report(ctx context.Context, lk *schedlock.Locker, job string) {
	if err := lk.Pause(ctx, job, "the database is being moved"); err != nil {
		log.Fatal(err)
	}
	history, err := lk.History(ctx, job)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the run before the last one:", history[1].State)
	st, err := lk.Status(ctx, job)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("paused:", st.Paused.Reason)
}

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
	defer processes(ctx, func(sess *concurrency.Session) {
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
		c.Schedule(job, job) // the job is the schedule too: that is how it learns its fire time
		c.Start()
		all = append(all, c)
	})()
	for range 3 {
		<-ran
	}
	report(ctx, lk, "invoices")
	for _, c := range all {
		<-c.Stop().Done() // before the session is closed
	}
	// Output:
	// the run before the last one: done
	// paused: the database is being moved
}

// The same under gocron.
func Example_gocron() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ran := make(chan struct{}, 100)
	var all []gocron.Scheduler
	var lk *schedlock.Locker
	defer processes(ctx, func(sess *concurrency.Session) {
		var err error
		if lk, err = schedlock.New(sess, &schedlock.Options{Done: failed}); err != nil {
			log.Fatal(err)
		}
		nightly, err := schedlock.NewGocronCron[gocron.Lock](lk, gocron.NewDefaultCron(true)) // false without seconds
		if err != nil {
			log.Fatal(err)
		}
		s, err := gocron.NewScheduler()
		if err != nil {
			log.Fatal(err)
		}
		_, err = s.NewJob(gocron.CronJob("* * * * * *", true), // in a program: "0 3 * * *", false
			gocron.NewTask(func() {
				ran <- struct{}{} // nightly.Running("invoices") returns the run
			}), gocron.WithName("invoices"),
			gocron.WithCronImplementation(nightly), gocron.WithDistributedJobLocker(nightly))
		if err != nil {
			log.Fatal(err)
		}
		s.Start()
		all = append(all, s)
	})()
	for range 3 {
		<-ran
	}
	report(ctx, lk, "invoices")
	for _, s := range all {
		if err := s.Shutdown(); err != nil { // before the session is closed
			log.Fatal(err)
		}
	}
	// Output:
	// the run before the last one: done
	// paused: the database is being moved
}
