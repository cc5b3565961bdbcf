// Cron shows two processes, played by two sessions, whose schedules fire at the same
// times, and of which one runs each of them; and the history that both can read.
//
//	go run ./examples/quickstart/cron
//	go run ./examples/quickstart/cron -endpoints 127.0.0.1:2379
//
// The loop below is what robfig/cron does with a Job: c.Schedule(job, job).
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/examples/internal/cluster"
	"github.com/etcdkit/etcdkit/schedlock"
)

func main() {
	if err := run(context.Background(), cluster.Flag(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// every is a schedule, as that of a cron library: cron.ParseStandard("0 9 * * *").
type every time.Duration

func (e every) Next(t time.Time) time.Time { return t.Truncate(time.Duration(e)).Add(time.Duration(e)) }

func run(ctx context.Context, endpoints string, out io.Writer) error {
	client, stop, err := cluster.Client(ctx, endpoints)
	if err != nil {
		return err
	}
	defer stop()
	opening, cancel := context.WithTimeout(ctx, 5*time.Second) // without an end to it, NewSession waits for etcd
	defer cancel()
	var lockers [2]*schedlock.Locker
	for i := range lockers {
		sess, err := concurrency.NewSession(opening, client, "quickstart", nil) // one per process
		if err != nil {
			return err
		}
		defer sess.Close(ctx)
		if lockers[i], err = schedlock.New(sess, nil); err != nil {
			return err
		}
	}

	send := func(ctx context.Context, r *schedlock.Run) error {
		return nil // ctx ends if the run is lost; r.Token() fences it off
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	ran, skipped := 0, 0
	begun := time.Now()
	for _, lk := range lockers {
		job, err := lk.Job("invoices", every(500*time.Millisecond), send, schedlock.AtMost(time.Minute))
		if err != nil {
			return err
		}
		wg.Go(func() {
			for now := begun; ; {
				next := job.Next(now)
				if next.Sub(begun) > 2*time.Second {
					return
				}
				time.Sleep(time.Until(next))
				res, err := job.RunContext(ctx)
				if err != nil {
					log.Print(err)
				}
				mu.Lock()
				if res.Outcome.Started() {
					ran++
				} else {
					skipped++ // res says why, and who has run it
				}
				mu.Unlock()
				now = next
			}
		})
	}
	wg.Wait()
	fmt.Fprintln(out, "ran:", ran)
	fmt.Fprintln(out, "skipped:", skipped)

	history, err := lockers[0].History(ctx, "invoices")
	if err != nil {
		return err
	}
	done := 0
	for _, r := range history {
		if r.State == schedlock.Done && !r.Tick.Before(begun) {
			done++
		}
	}
	fmt.Fprintln(out, "in the history:", done)
	return nil
}
