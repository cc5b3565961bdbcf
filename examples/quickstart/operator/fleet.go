package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/examples/internal/cluster"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/schedlock"
)

// process is one process of the fleet, or the operator's, played by a session of its own.
type process struct {
	sem *concurrency.Semaphore
	lk  *schedlock.Locker
	st  *idempotency.Store
}

func newProcess(ctx context.Context, sess *concurrency.Session) (p process, err error) {
	if p.sem, err = concurrency.NewSemaphore(sess, "charge", 3, &concurrency.SemaphoreOptions{AdoptLimit: true}); err != nil {
		return p, err
	}
	if p.lk, err = schedlock.New(sess, nil); err != nil {
		return p, err
	}
	p.st, err = idempotency.NewStore(sess, "payments", &idempotency.Options{Orphan: idempotency.Refuse})
	return p, err
}

// run makes a fleet of one process and an operator, and shows what the process sees of the
// operator's evening.
func run(ctx context.Context, endpoints string) error {
	client, stop, err := cluster.Client(ctx, endpoints)
	if err != nil {
		return err
	}
	defer stop()
	opening, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var both [2]process
	for i, holder := range []string{"web-1", "operator"} {
		sess, err := concurrency.NewSession(opening, client, "evening", &concurrency.SessionOptions{Holder: holder})
		if err != nil {
			return err
		}
		defer sess.Close(ctx)
		if both[i], err = newProcess(ctx, sess); err != nil {
			return err
		}
	}
	web, operator := both[0], both[1]

	stuck, err := web.sem.Acquire(ctx, concurrency.ID("order-17"), concurrency.Note("card"))
	if err != nil {
		return err
	}
	if _, err := web.lk.Do(ctx, "invoices", func(context.Context, *schedlock.Run) error { return nil }); err != nil {
		return err
	}
	key := idempotency.Key{Scope: "tenant 7", Op: "POST /payments", ID: fmt.Sprint(time.Now().UnixNano())}
	attempt, _, err := web.st.Begin(ctx, key, nil)
	if err != nil {
		return err
	}
	if err := attempt.Abandon(ctx); err != nil { // as a crash after the charge leaves it
		return err
	}

	if err := evening(ctx, operator.sem, operator.lk, operator.st); err != nil {
		return err
	}

	<-stuck.Context().Done()
	fmt.Println("web-1 was evicted:", errors.Is(stuck.Err(), concurrency.ErrEvicted))
	res, err := idempotency.Do(ctx, web.st, key, nil, func(context.Context, *idempotency.Attempt) (string, error) {
		return "charge 2", nil
	})
	if err != nil {
		return err
	}
	fmt.Println("the customer's next try gets:", res.Value)
	return operator.lk.Resume(ctx, "invoices")
}
