// Election shows two instances of a service. One leads and publishes its address; asked to
// step down, it stops its work, and only then the other one leads.
//
//	go run ./examples/quickstart/election
//	go run ./examples/quickstart/election -endpoints 127.0.0.1:2379
//
// The watcher is a third process, which prints the leader.
package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/examples/program"
)

var run = program.Processes("quickstart", elect, "A", "B", "watcher")

func main() { program.Main("quickstart", run) }

func elect(ctx context.Context, process []*concurrency.Session) error {
	a, b := process[0], process[1]
	watcher, err := concurrency.NewElection(process[2], "ingest")
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	var instances sync.WaitGroup
	defer instances.Wait()
	defer stop()
	for now, err := range watcher.Watch(ctx) {
		switch {
		case err != nil:
			return err
		case !now.Elected():
			fmt.Println("there is no leader")
			instances.Go(func() { lead(ctx, a) })
		case now.Note == "address of A":
			fmt.Println("A leads, at the", now.Note)
			instances.Go(func() { lead(ctx, b) })
			if err := candidate(ctx, watcher); err != nil {
				return err
			}
			if _, err := watcher.StepDown(ctx, "to show it"); err != nil {
				return err
			}
		default:
			fmt.Println("B leads, at the", now.Note)
			return nil
		}
	}
	return ctx.Err()
}
