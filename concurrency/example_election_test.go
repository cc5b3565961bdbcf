package concurrency_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// One instance of a service ingests, and publishes where it listens. When it is
// asked to step down it stops in its own time, and only then the next one begins.
func ExampleElection() {
	ctx := context.Background()
	etcd, err := embedtest.New(ctx, nil) // in a program: clientv3.New
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	sess, err := concurrency.NewSession(ctx, etcd.Client(), "metrics", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer sess.Close(ctx)
	el, err := concurrency.NewElection(sess, "ingest")
	if err != nil {
		log.Fatal(err)
	}

	terms := 0
	err = el.Lead(ctx, func(term context.Context, _ *concurrency.Permit) error {
		if terms++; terms == 2 {
			fmt.Println("leads again, and is done")
			return nil // resigns
		}
		now, err := el.Leader(ctx)
		if err != nil {
			return err
		}
		fmt.Println("ingests at", now.Note)
		if _, err := el.StepDown(ctx, "deploy"); err != nil { // in general, another process
			return err
		}
		<-term.Done() // the work continues until then
		fmt.Println("asked to step down:", errors.Is(context.Cause(term), concurrency.ErrStepDown))
		return nil
	}, concurrency.Note("10.0.0.7:4000"))
	if err != nil {
		log.Fatal(err)
	}
	now, err := el.Leader(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("elected:", now.Elected())
	// Output:
	// ingests at 10.0.0.7:4000
	// asked to step down: true
	// leads again, and is done
	// elected: false
}
