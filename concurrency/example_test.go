package concurrency_test

import (
	"context"
	"fmt"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// At most ten charges at a time, in all processes that run this. The function run
// is that of the program of the README.
func Example() {
	ctx := context.Background()
	etcd, err := embedtest.New(ctx, nil) // in a program: clientv3.New
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()

	if err := run(ctx, etcd.Client()); err != nil {
		log.Fatal(err)
	}
	// Output: charged
}

func run(ctx context.Context, client *clientv3.Client) error {
	opening, cancel := context.WithTimeout(ctx, 5*time.Second) // in case there is no etcd
	defer cancel()
	sess, err := concurrency.NewSession(opening, client, "payments", nil) // one per process
	if err != nil {
		return err
	}
	defer sess.Close(ctx)                                         // not the ctx that SIGTERM ends, see Graceful stop
	sem, err := concurrency.NewSemaphore(sess, "charge", 10, nil) // 10 in the whole fleet
	if err != nil {
		return err
	}
	return sem.Do(ctx, func(ctx context.Context, p *concurrency.Permit) error {
		return charge(ctx) // ctx ends if the permit is lost
	})
}

func charge(context.Context) error {
	fmt.Println("charged")
	return nil
}
