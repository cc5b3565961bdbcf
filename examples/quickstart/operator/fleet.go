package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/examples/program"
	"github.com/etcdkit/etcdkit/schedlock"
)

var run = program.Processes("evening", fleet, "web-1", "operator")

// open makes what each process of the fleet has, and the operator too.
func open(sess *concurrency.Session) (*concurrency.Semaphore, *schedlock.Locker, *idempotency.Store, error) {
	sem, err1 := concurrency.NewSemaphore(sess, "charge", 3, &concurrency.SemaphoreOptions{AdoptLimit: true})
	lk, err2 := schedlock.New(sess, nil)
	st, err3 := idempotency.NewStore(sess, "payments", &idempotency.Options{OnLost: idempotency.Refuse})
	return sem, lk, st, errors.Join(err1, err2, err3)
}

// fleet is web-1, and prints what it sees of the operator's evening.
func fleet(ctx context.Context, process []*concurrency.Session) error {
	sem, lk, st, err := open(process[0])
	if err != nil {
		return err
	}
	stuck, err := sem.Acquire(ctx, concurrency.ID("order-17"), concurrency.Note("card"))
	if err != nil {
		return err
	}
	if _, err := lk.Do(ctx, "invoices", func(context.Context, *schedlock.Run) error { return nil }); err != nil {
		return err
	}
	key := idempotency.Key{Scope: "tenant 7", Op: "POST /payments", ID: fmt.Sprint(time.Now().UnixNano())}
	attempt, _, err := st.Begin(ctx, key, nil, idempotency.Note("order-17"))
	if err != nil {
		return err
	}
	if err := attempt.Abandon(ctx); err != nil { // as a crash after the charge leaves it
		return err
	}

	semOps, lkOps, stOps, err := open(process[1])
	if err != nil {
		return err
	}
	if err := evening(ctx, semOps, lkOps, stOps); err != nil {
		return err
	}

	<-stuck.Context().Done()
	fmt.Println("web-1 was evicted:", errors.Is(stuck.Err(), concurrency.ErrEvicted))
	res, err := idempotency.Do(ctx, st, key, nil, func(context.Context, *idempotency.Attempt) (string, error) {
		return "charge 2", nil
	})
	if err != nil {
		return err
	}
	fmt.Println("the customer's next try gets:", res.Value)
	return lk.Resume(ctx, "invoices")
}
