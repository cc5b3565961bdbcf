package main

import (
	"log"
	"time"

	"github.com/etcdkit/etcdkit/schedlock"
)

// every is a schedule, as that of a cron library: cron.ParseStandard("0 9 * * *").
type every time.Duration

func (e every) Next(t time.Time) time.Time { return t.Truncate(time.Duration(e)).Add(time.Duration(e)) }

// tick does until end what a cron library does with a job.
func tick(job *schedlock.Job, now, end time.Time) {
	for now = job.Next(now); now.Before(end); now = job.Next(now) {
		time.Sleep(time.Until(now))
		job.Run()
	}
}

// report returns what logs the results of a process. Cron libraries drop them.
func report(name string) func(schedlock.Result, error) {
	return func(res schedlock.Result, err error) {
		if err != nil {
			log.Printf("%s: %v: %v", name, res.Outcome, err)
		} else {
			log.Printf("%s: %v", name, res.Outcome)
		}
	}
}
