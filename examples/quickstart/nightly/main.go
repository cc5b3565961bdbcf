// Nightly runs a report at half past two in Berlin, once each night, in however many processes of it run; also in the
// nights in which the clock is changed. It runs until Ctrl-C.
//
//	go run ./examples/quickstart/nightly
//	go run ./examples/quickstart/nightly -line '* * * * *' -endpoints 127.0.0.1:2379
//
// Whether last night's has succeeded is an exit code, also when no process lives:
//
//	etcdkit jobs check -N quickstart report --within 26h
package main

import (
	"context"
	"flag"
	"time"
	_ "time/tzdata" // for a container that has no zones

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/examples/program"
	"github.com/etcdkit/etcdkit/schedlock"
	"github.com/etcdkit/etcdkit/schedlock/crontab"
)

var line = flag.String("line", "30 2 * * *", "when the report runs, as in a crontab")

func main() { program.Main("quickstart", run) }

func run(sigterm context.Context, client *clientv3.Client) error {
	opening, cancel := context.WithTimeout(sigterm, 5*time.Second)
	defer cancel()
	sess, err := concurrency.NewSession(opening, client, "quickstart", &concurrency.SessionOptions{Hooks: program.Hooks(sigterm)}) // one per process
	if err != nil {
		return err
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		return err
	}
	nights, err := crontab.Parse(*line, berlin)
	if err != nil {
		return err
	}
	lk, err := schedlock.New(sess, &schedlock.Options{Done: done, Lost: lost}) // which say so to people
	if err != nil {
		return err
	}
	job, err := lk.Job("report", nights, report, schedlock.AtMost(time.Hour), schedlock.OnMisfire(schedlock.Once))
	if err != nil {
		return err
	}
	return loop(sigterm, sess, job)
}

func report(ctx context.Context, r *schedlock.Run) error {
	return program.Work(ctx, "the report of "+r.Tick().Format(time.RFC3339), time.Second) // ends early if the run is lost
}
