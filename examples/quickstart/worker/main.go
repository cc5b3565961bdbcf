// Worker works under a limit that all processes of a fleet share, goes on through an outage
// of etcd, and stops gracefully on Ctrl-C and SIGTERM: work in progress is completed.
//
//	go run ./examples/quickstart/worker
//	go run ./examples/quickstart/worker -endpoints 127.0.0.1:2379
//
// Start it in several terminals on one etcd, and stop and start that etcd meanwhile.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/examples/internal/cluster"
)

func main() {
	sigterm, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(sigterm, cluster.Flag()); err != nil {
		log.Fatal(err)
	}
}

func run(sigterm context.Context, endpoints string) error {
	client, stop, err := cluster.Client(sigterm, endpoints)
	if err != nil {
		return err
	}
	defer stop()
	opening, cancel := context.WithTimeout(sigterm, 5*time.Second) // without a deadline, NewSession waits for etcd
	defer cancel()
	sess, err := concurrency.NewSession(opening, client, "quickstart", nil) // one per process
	if err != nil {
		return err
	}
	sem, err := concurrency.NewSemaphore(sess, "render", 3, &concurrency.SemaphoreOptions{AdoptLimit: true}) // operators may change it
	if err != nil {
		return err
	}

	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			for {
				err := sem.Do(context.Background(), render) // not sigterm: its end would interrupt the work
				switch {
				case errors.Is(err, concurrency.ErrClosed):
					return
				case err != nil: // after a long outage: ErrLost
					log.Print("the frame is rendered again: ", err)
					time.Sleep(time.Second)
				}
			}
		})
	}
	<-sigterm.Done()
	closing, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err = sess.Close(closing) // waits for the work in progress
	wg.Wait()
	return err
}

func render(ctx context.Context, _ *concurrency.Permit) error {
	fmt.Println("begins")
	select {
	case <-time.After(500 * time.Millisecond): // the work
		fmt.Println("is complete")
		return nil
	case <-ctx.Done(): // the permit is lost
		return context.Cause(ctx)
	}
}
