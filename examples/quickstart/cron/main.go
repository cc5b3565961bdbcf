// Cron shows two processes with one schedule, which fires every half second. One of the two runs
// each fire time, and both can read the history.
//
//	go run ./examples/quickstart/cron
//	go run ./examples/quickstart/cron -endpoints 127.0.0.1:2379
//
// Under robfig/cron, c.Schedule(job, job) replaces tick: see the Examples in integration.
package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/examples/program"
	"github.com/etcdkit/etcdkit/schedlock"
)

var run = program.Processes("quickstart", schedule, "A", "B")

func main() { program.Main("quickstart", run) }

func schedule(ctx context.Context, process []*concurrency.Session) error {
	begun := time.Now()
	var wg sync.WaitGroup
	var lk *schedlock.Locker
	for _, sess := range process {
		var err error
		if lk, err = schedlock.New(sess, &schedlock.Options{Done: report(sess.Owner())}); err != nil {
			return err
		}
		job, err := lk.Job("invoices", schedlock.Periods(500*time.Millisecond), func(ctx context.Context, r *schedlock.Run) error {
			return nil // ctx ends if the run is lost; r.Token() is its fencing token
		}, schedlock.AtMost(time.Minute))
		if err != nil {
			return err
		}
		wg.Go(func() { tick(job, begun, begun.Add(2*time.Second)) })
	}
	wg.Wait()

	history, err := lk.History(ctx, "invoices")
	for _, r := range history {
		if !r.Tick.Before(begun) {
			fmt.Println(r.Tick.Format("15:04:05.0"), "run by", r.Owner, r.State)
		}
	}
	return err
}
