// Operator shows an operator's evening: what runs where, a smaller limit, a stuck holder
// evicted, a job paused, and a payment with an unknown outcome resolved.
//
//	go run ./examples/quickstart/operator -endpoints 127.0.0.1:2379
//
// The fleet is in fleet.go. An operator's program needs a session of the same namespace.
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/examples/program"
	"github.com/etcdkit/etcdkit/schedlock"
)

func main() { program.Main("evening", run) }

func evening(ctx context.Context, sem *concurrency.Semaphore, lk *schedlock.Locker, st *idempotency.Store) error {
	now, err := sem.Status(ctx)
	if err != nil {
		return err
	}
	for _, h := range now.Holders {
		fmt.Printf("%s: %d of %d in use, by %s: %s %s\n", now.Name, now.Used, now.Limit, h.Owner, h.ID, h.Note)
	}
	smaller := sem.SetLimit(ctx, 1) // for all processes, which have AdoptLimit set
	if err := errors.Join(smaller, sem.Evict(ctx, "order-17", "stuck since noon")); err != nil {
		return err
	}

	if err := lk.Pause(ctx, "invoices", "the database is being moved"); err != nil {
		return err
	}
	history, err := lk.History(ctx, "invoices")
	if err != nil {
		return err
	}
	for _, r := range history {
		fmt.Printf("invoices, paused, was run by %s: %s\n", r.Owner, r.State)
	}

	for r, err := range st.List(ctx, idempotency.Filter{State: idempotency.Unknown}) {
		if err != nil {
			return err
		}
		fmt.Printf("%s of %s, %s: outcome %s\n", r.Op, r.Scope, r.Note, r.State)
		if r.Note != "order-17" { // the one that is in the provider's books, as charge 1
			continue
		}
		if err := st.Resolve(ctx, r.Ref, idempotency.WasDone([]byte(`"charge 1"`)), idempotency.OnlyRevision(r.Revision)); err != nil {
			return err
		}
	}
	return nil
}
