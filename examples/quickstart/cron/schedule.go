package main

import (
	"log"
	"time"

	"github.com/etcdkit/etcdkit/schedlock"
)

// tick does what a cron library does with a job, until end.
func tick(job *schedlock.Job, now, end time.Time) {
	for now = job.Next(now); now.Before(end); now = job.Next(now) {
		time.Sleep(time.Until(now))
		job.Run()
	}
}

// report returns a function that logs the results of a process. Cron libraries drop them.
func report(name string) func(schedlock.Result, error) {
	return func(res schedlock.Result, err error) {
		if err != nil {
			log.Printf("%s: %v: %v", name, res.Outcome, err)
		} else {
			log.Printf("%s: %v", name, res.Outcome)
		}
	}
}
