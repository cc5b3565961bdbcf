// Operator shows an operator's evening: what runs where, a smaller limit, a stuck holder
// evicted, a job paused, and a payment with an unknown outcome resolved.
//
//	go run ./examples/quickstart/operator
//	go run ./examples/quickstart/operator -endpoints 127.0.0.1:2379
//
// What there is to operate is made by fleet.go, beside this file.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/examples/internal/cluster"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/schedlock"
)

func main() {
	if err := run(context.Background(), cluster.Flag()); err != nil {
		log.Fatal(err)
	}
}

// evening is the operator's program. All it needs is a session of the fleet's namespace.
func evening(ctx context.Context, sem *concurrency.Semaphore, lk *schedlock.Locker, st *idempotency.Store) error {
	now, err := sem.Status(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d of %d held\n", now.Name, now.Held, now.Limit)
	for _, r := range now.Holders {
		fmt.Printf("  held by %s: %s %s\n", r.Holder, r.ID, r.Note)
	}
	if err := sem.SetLimit(ctx, 1); err != nil { // for all processes, which have AdoptLimit set
		return err
	}
	if err := sem.Evict(ctx, "order-17", "stuck since noon"); err != nil {
		return err
	}

	jobs, err := lk.Jobs(ctx)
	if err != nil {
		return err
	}
	for _, name := range jobs {
		if err := lk.Pause(ctx, name, "the database is being moved"); err != nil {
			return err
		}
		history, err := lk.History(ctx, name)
		if err != nil {
			return err
		}
		fmt.Println(name, "is paused")
		for _, r := range history {
			fmt.Printf("  run by %s: %s\n", r.Holder, r.State)
		}
	}

	for r, err := range st.List(ctx, idempotency.Filter{State: idempotency.Unknown}) {
		if err != nil {
			return err
		}
		fmt.Printf("%s of %s: outcome %s\n", r.Op, r.Scope, r.State)
		// The provider's books say that the customer was charged.
		if err := st.Resolve(ctx, r.Ref, idempotency.WasDone([]byte(`"charge 1"`))); err != nil {
			return err
		}
	}
	return nil
}
