// Mutex shows two processes that must not migrate a schema at the same time, and the
// fencing token by which a database could refuse the former holder of a lock that was lost.
//
//	go run ./examples/quickstart/mutex
//	go run ./examples/quickstart/mutex -endpoints 127.0.0.1:2379
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/examples/program"
)

var run = program.Processes("quickstart", migrate, "A", "B")

func main() { program.Main("quickstart", run) }

func migrate(ctx context.Context, process []*concurrency.Session) error {
	var locks [2]*concurrency.Mutex
	for i, sess := range process {
		var err error
		if locks[i], err = concurrency.NewMutex(sess, "migrate"); err != nil {
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
	if err := a.Release(ctx); errors.Is(err, concurrency.ErrLost) {
		return err // before this: B may have begun already
	} else if err != nil {
		log.Print(err) // an *UnconfirmedError: A was alone, and the release continues in the background
	}
	return locks[1].Do(ctx, func(_ context.Context, b *concurrency.Permit) error {
		fmt.Println("B migrates, with a greater token:", b.Token() > a.Token())
		return nil
	})
}
