package main

import (
	"context"
	"log"
	"time"

	"github.com/etcdkit/etcdkit/schedlock"
)

// loop does what a cron library does with a job, until SIGTERM; a run in progress may end. Under robfig/cron,
// c.Schedule(job, job) replaces it.
func loop(sigterm context.Context, job *schedlock.Job) {
	for sigterm.Err() == nil {
		next := job.Next(time.Now())
		log.Print("the next run is at ", next)
		select {
		case <-sigterm.Done():
		case <-time.After(time.Until(next)):
			_, _ = job.RunContext(context.WithoutCancel(sigterm)) // done has the result
		}
	}
}

// done is called in the process that called for a run, also if another one runs it.
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
