package main

import (
	"context"
	"log"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/schedlock"
)

// loop calls the job at its fire times until SIGTERM, and then closes the session: a run in progress may end, and a call
// that waits for the run of another process, with Retries or RetryFailed, returns. Under robfig/cron, c.Schedule(job, job)
// replaces the goroutine, and the wait for c.Stop() that for the calls.
func loop(sigterm context.Context, sess *concurrency.Session, job *schedlock.Job) error {
	var calls sync.WaitGroup
	calls.Go(func() {
		for reached(sigterm, job.Next, time.Now) {
			_, _ = job.RunContext(context.WithoutCancel(sigterm)) // done has the result
		}
	})
	<-sigterm.Done()
	closing, cancel := context.WithTimeout(context.WithoutCancel(sigterm), 20*time.Second) // less than the supervisor allows
	defer cancel()
	defer calls.Wait()
	return sess.Close(closing)
}

// reached waits for the fire time that follows now. It returns false if ctx has ended, or there is none. It asks again each
// minute, since a timer does not count the time of a suspension, and a clock that was ahead may be set back.
func reached(ctx context.Context, following func(time.Time) time.Time, now func() time.Time) bool {
	next := following(now())
	log.Print("the next run is at ", next)
	for !next.IsZero() && now().Before(next) {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(min(next.Sub(now()), time.Minute)):
		}
		if earlier := following(now()); !earlier.IsZero() && earlier.Before(next) {
			next = earlier
		}
	}
	return !next.IsZero() && ctx.Err() == nil
}

// done is called in the process that called for a run, also if another one runs it. With RetryFailed a failure here may be
// that of one attempt, after which another process has succeeded: alert by the exporter's metrics,
// or have `etcdkit jobs check -N quickstart report` say in the morning whether the night went well.
func done(res schedlock.Result, err error) {
	if err != nil {
		log.Printf("%s of %v: %v: %v", res.Job, res.Tick, res.Outcome, err)
	} else if res.Outcome != schedlock.Claimed { // another process runs it
		log.Printf("%s of %v: %v", res.Job, res.Tick, res.Outcome)
	}
}

// lost is called in a process that lives, if that of a run has died or was cut off.
func lost(run schedlock.Record) {
	log.Printf("%s of %v: lost in %s", run.Job, run.Tick, run.Owner)
}
