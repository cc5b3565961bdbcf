// Semaphore shows a limit that all processes of a fleet share: three of ten goroutines
// render at a time, and would do so on ten machines.
//
//	go run ./examples/quickstart/semaphore
//	go run ./examples/quickstart/semaphore -endpoints 127.0.0.1:2379
//
// On an etcd of yours it leaves one key, the limit.
package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
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
	defer program.CloseSession(sess) // waits for the work in progress, and does not interrupt it as the end of the ctx of Do would
	defer context.AfterFunc(sigterm, func() { program.CloseSession(sess) })()
	sem, err := concurrency.NewSemaphore(sess, "render", 3, &concurrency.SemaphoreOptions{AdoptLimit: true}) // operators may change it
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	var running atomic.Int64
	var seen [10]int64
	var errs [10]error
	for i := range errs {
		wg.Go(func() {
			errs[i] = sem.Do(context.Background(), func(ctx context.Context, _ *concurrency.Permit) error {
				seen[i] = running.Add(1)
				defer running.Add(-1)
				return program.Work(ctx, fmt.Sprint("frame ", i), 50*time.Millisecond) // ends early if the permit is lost
			})
		})
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	fmt.Printf("10 rendered, at most %d at a time\n", slices.Max(seen[:]))
	return nil
}
