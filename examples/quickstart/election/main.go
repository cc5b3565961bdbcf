// Election shows two instances of a service, played by two sessions. One of them leads
// and publishes where it can be reached; asked to step down, it stops its work, and
// only then the other one leads.
//
//	go run ./examples/quickstart/election
//	go run ./examples/quickstart/election -endpoints 127.0.0.1:2379
//
// It prints who leads, as a third instance sees it.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/examples/internal/cluster"
)

func main() {
	if err := run(context.Background(), cluster.Flag()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, endpoints string) error {
	client, stop, err := cluster.Client(ctx, endpoints)
	if err != nil {
		return err
	}
	defer stop()
	opening, cancel := context.WithTimeout(ctx, 5*time.Second) // without an end to it, NewSession waits for etcd
	defer cancel()
	var elections [3]*concurrency.Election
	for i := range elections {
		sess, err := concurrency.NewSession(opening, client, "quickstart", nil) // one per process
		if err != nil {
			return err
		}
		defer sess.Close(ctx)
		if elections[i], err = concurrency.NewElection(sess, "ingest", nil); err != nil {
			return err
		}
	}

	ctx, leave := context.WithCancel(ctx)
	defer leave()
	watcher := elections[2]
	done := make(chan error, 2)
	instance := func(name string, el *concurrency.Election) {
		done <- el.Lead(ctx, func(ctx context.Context, _ *concurrency.Permit) error {
			<-ctx.Done() // here the work would go on until then
			if errors.Is(context.Cause(ctx), concurrency.ErrStepDown) {
				fmt.Println(name, "was asked to step down, and stops")
			}
			return nil
		}, concurrency.Note(name))
	}
	leaders := 0
	for now, err := range watcher.Watch(ctx) {
		if err != nil {
			return err
		}
		if now.Nobody() {
			fmt.Println("nobody leads")
			go instance("A", elections[0])
			continue
		}
		fmt.Println(now.Note, "leads")
		if leaders++; leaders == 2 {
			break
		}
		go instance("B", elections[1])
		if err := candidates(ctx, watcher, 1); err != nil {
			return err
		}
		if _, err := watcher.StepDown(ctx, "to show it"); err != nil {
			return err
		}
	}
	leave()
	for range 2 {
		if err := <-done; !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return nil
}

// candidates waits until that many stand behind the leader.
func candidates(ctx context.Context, el *concurrency.Election, n int) error {
	for {
		st, err := el.Status(ctx)
		if err != nil || len(st.Waiters) >= n {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}
