package idempotency_test

import (
	"context"
	"fmt"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// A payment that is sent twice is made once, and both callers get the same receipt.
func ExampleDo() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	etcd, err := embedtest.New(ctx, nil) // here: your etcd
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()

	sess, err := concurrency.NewSession(ctx, etcd.Client(), "billing", nil) // one per process
	if err != nil {
		log.Fatal(err)
	}
	defer sess.Close(ctx)
	st, err := idempotency.NewStore(sess, "payments", nil)
	if err != nil {
		log.Fatal(err)
	}

	type receipt struct{ Charge string }
	charge := func(key string, cents int) string { return fmt.Sprintf("%d cents", cents) } // here: your provider
	key := idempotency.Key{Scope: "tenant 7", Op: "POST /payments", ID: "0f8fad5b-d9cb-469f-a165-70867728950e"}
	for range 2 {
		res, err := idempotency.Do(ctx, st, key, map[string]int{"cents": 100}, func(ctx context.Context, a *idempotency.Attempt) (receipt, error) {
			// If this process dies now, another attempt calls with the same key, and
			// the provider charges once.
			id := charge(a.ChildKey("charge"), 100)
			// This key changes together with the outcome, or not at all.
			a.Attach(nil, clientv3.OpPut("/billing/paid/order 17", id))
			return receipt{Charge: id}, nil
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(res.Value.Charge, "replayed:", res.Replayed)
	}
	// Output:
	// 100 cents replayed: false
	// 100 cents replayed: true
}

// A worker fails after its first step: the next attempt continues behind it. With Refuse, the function would not run
// again until an operator calls Resolve with NotDone, after a failure as after a crash.
func ExampleStep() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	etcd, err := embedtest.New(ctx, nil) // here: your etcd
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	sess, err := concurrency.NewSession(ctx, etcd.Client(), "billing", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer sess.Close(ctx)
	st, err := idempotency.NewStore(sess, "orders", &idempotency.Options{SingleTenant: true})
	if err != nil {
		log.Fatal(err)
	}

	crash := true
	ship := func(ctx context.Context, a *idempotency.Attempt) (string, error) {
		label, err := idempotency.Step(a, "label", func(context.Context) (string, error) {
			fmt.Println("a label is made")
			return "label 1", nil
		})
		if err != nil {
			return "", err
		}
		if crash {
			crash = false
			return "", fmt.Errorf("the printer is broken")
		}
		return label + ", printed by attempt " + fmt.Sprint(a.Attempt()), nil
	}
	key := idempotency.Key{Op: "ship", ID: "order 17"}
	_, err = idempotency.Do(ctx, st, key, nil, ship)
	fmt.Println(err)
	res, err := idempotency.Do(ctx, st, key, nil, ship)
	fmt.Println(res.Value, err)
	// Output:
	// a label is made
	// the printer is broken
	// label 1, printed by attempt 2 <nil>
}
