// Mutex shows two processes, played by two sessions, that must not migrate a
// schema at the same time, and the fencing token by which a database could refuse
// the former holder of a lock that was lost.
//
//	go run ./examples/quickstart/mutex
//	go run ./examples/quickstart/mutex -endpoints 127.0.0.1:2379
//
// It prints who migrates and who does not.
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
	var locks [2]*concurrency.Mutex
	for i := range locks {
		sess, err := concurrency.NewSession(opening, client, "quickstart", nil) // one per process
		if err != nil {
			return err
		}
		defer sess.Close(ctx)
		if locks[i], err = concurrency.NewMutex(sess, "migrate", nil); err != nil {
			return err
		}
	}

	a, err := locks[0].Lock(ctx)
	if err != nil {
		return err
	}
	fmt.Println("A migrates")
	if _, err := locks[1].TryLock(ctx); errors.Is(err, concurrency.ErrFull) {
		fmt.Println("B does not: the lock is taken")
	}
	if err := a.Release(ctx); err != nil {
		return err // it was lost before: B may have begun already
	}
	return locks[1].Do(ctx, func(_ context.Context, b *concurrency.Permit) error {
		fmt.Println("B migrates, with a greater token:", b.Token() > a.Token())
		return nil
	})
}
