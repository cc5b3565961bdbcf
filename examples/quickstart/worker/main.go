// Worker works under a limit that all processes of a fleet share, continues through an outage
// of etcd, and stops gracefully on Ctrl-C and SIGTERM: work in progress is completed.
//
//	go run ./examples/quickstart/worker
//
// Start it in several terminals with -endpoints 127.0.0.1:2379, and restart that etcd.
package main

import (
	"context"
	"errors"
	"log"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/examples/program"
)

func main() { program.Main("quickstart", run) }

func run(sigterm context.Context, client *clientv3.Client) error {
	opening, cancel := context.WithTimeout(sigterm, 5*time.Second) // without a deadline, NewSession waits for etcd
	defer cancel()
	sess, err := concurrency.NewSession(opening, client, "quickstart", &concurrency.SessionOptions{Hooks: program.Hooks(sigterm)}) // one per process
	if err != nil {
		return err
	}
	sem, err := concurrency.NewSemaphore(sess, "render", 3, &concurrency.SemaphoreOptions{AdoptLimit: true}) // operators may change it
	if err != nil {
		return err
	}
	var workers sync.WaitGroup
	for range 5 {
		workers.Go(func() {
			for {
				// Not sigterm: its end would interrupt the work in progress.
				err := sem.Do(context.Background(), func(ctx context.Context, _ *concurrency.Permit) error {
					return program.Work(ctx, "a frame", 500*time.Millisecond) // ends early if the permit is lost
				})
				if errors.Is(err, concurrency.ErrClosed) {
					return
				} else if err != nil { // ErrLost after a long outage
					log.Print("a frame is rendered again: ", err)
					time.Sleep(time.Second)
				}
			}
		})
	}
	<-sigterm.Done()
	closing, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	defer workers.Wait()
	return sess.Close(closing) // waits for the work in progress
}
