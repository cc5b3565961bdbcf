package concurrency_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
)

// A graceful stop: close the session, and leave the context of Do alone. The end of that
// context would interrupt the work that holds a permit; Close refuses new work, waits for
// the work in progress, and then releases the lease.
func ExampleSession_Close() {
	sess, stop := session(context.Background())
	defer stop()
	sem, err := concurrency.NewSemaphore(sess, "render", 3, nil)
	if err != nil {
		log.Fatal(err)
	}
	// In a program: signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	sigterm, signal := context.WithCancel(context.Background())

	worker := make(chan error)
	go func() {
		for frame := 1; ; frame++ {
			err := sem.Do(context.Background(), func(ctx context.Context, _ *concurrency.Permit) error {
				fmt.Println("frame", frame, "begins")
				if frame == 2 {
					signal()
				}
				select {
				case <-time.After(100 * time.Millisecond): // the work
					fmt.Println("frame", frame, "is complete")
					return nil
				case <-ctx.Done(): // the permit is lost, or Close has waited long enough
					return context.Cause(ctx)
				}
			})
			if err != nil {
				worker <- err
				return
			}
		}
	}()

	<-sigterm.Done()
	closing, cancel := context.WithTimeout(context.Background(), 20*time.Second) // less than the supervisor allows
	defer cancel()
	if err := sess.Close(closing); err != nil {
		log.Print(err) // some work was interrupted, or the lease was not revoked and expires
	}
	fmt.Println("no more work:", errors.Is(<-worker, concurrency.ErrClosed))
	// Output:
	// frame 1 begins
	// frame 1 is complete
	// frame 2 begins
	// frame 2 is complete
	// no more work: true
}
