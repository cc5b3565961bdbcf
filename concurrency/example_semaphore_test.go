package concurrency_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// session stands for the one that a program starts at its beginning and closes at
// its end.
func session(ctx context.Context) (sess *concurrency.Session, stop func()) {
	etcd, err := embedtest.New(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	sess, err = concurrency.NewSession(ctx, etcd.Client(), "media", nil)
	if err != nil {
		log.Fatal(err)
	}
	return sess, func() { _ = sess.Close(ctx); _ = etcd.Close() }
}

// Do is the usual way: the permit is released however the function ends.
func ExampleSemaphore_Do() {
	ctx := context.Background()
	sess, stop := session(ctx)
	defer stop()

	sem, err := concurrency.NewSemaphore(sess, "render", 10, nil)
	if err != nil {
		log.Fatal(err)
	}
	err = sem.Do(ctx, func(ctx context.Context, _ *concurrency.Permit) error {
		for frame := 1; frame <= 3; frame++ {
			if ctx.Err() != nil {
				return context.Cause(ctx) // the permit is lost, or the caller gave up
			}
			fmt.Println("frame", frame)
		}
		return nil
	})
	if errors.Is(err, concurrency.ErrLost) {
		fmt.Println("another process may have rendered at the same time")
	}
	// Output:
	// frame 1
	// frame 2
	// frame 3
}

// A permit that outlives a call is acquired and released by hand. This one counts
// as 3 of 10, and is waited for a second at most.
func ExampleSemaphore_Acquire() {
	ctx := context.Background()
	sess, stop := session(ctx)
	defer stop()

	sem, err := concurrency.NewSemaphore(sess, "memory-gb", 10, nil)
	if err != nil {
		log.Fatal(err)
	}
	p, err := sem.Acquire(ctx, concurrency.Weight(3), concurrency.Wait(time.Second))
	switch {
	case errors.Is(err, concurrency.ErrFull):
		fmt.Println("busy, come back later")
		return
	case err != nil:
		log.Fatal(err)
	}

	st, err := sem.Status(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d of %d in use\n", st.Used, st.Limit)

	if err := p.Release(ctx); err != nil {
		log.Fatal(err) // it had ended before
	}
	fmt.Println("released")
	// Output:
	// 3 of 10 in use
	// released
}

// Contention is no failure: its error, ErrFull, is distinct from all others.
func ExampleSemaphore_TryAcquire() {
	ctx := context.Background()
	sess, stop := session(ctx)
	defer stop()

	sem, err := concurrency.NewSemaphore(sess, "render", 1, nil)
	if err != nil {
		log.Fatal(err)
	}
	p, err := sem.TryAcquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer p.Release(ctx)

	_, err = sem.TryAcquire(ctx)
	var full *concurrency.FullError // which errors.Is matches with ErrFull
	if errors.As(err, &full) {
		fmt.Printf("%d of %d in use, %d waiting\n", full.Used, full.Limit, full.Waiting)
	}
	// Output: 1 of 1 in use, 0 waiting
}

// A limit of 0 pauses all processes. Once no permit is held, no process works.
func ExampleSemaphore_SetLimit() {
	ctx := context.Background()
	sess, stop := session(ctx)
	defer stop()

	sem, err := concurrency.NewSemaphore(sess, "render", 10, nil)
	if err != nil {
		log.Fatal(err)
	}
	// CreateLimit: also if no process has used the semaphore yet.
	if err := sem.SetLimit(ctx, 0, concurrency.CreateLimit()); err != nil {
		log.Fatal(err)
	}
	for st, err := range sem.Watch(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if st.Limit == 0 && st.Used == 0 {
			break
		}
	}
	fmt.Println("no process renders")

	if err := sem.SetLimit(ctx, 10); err != nil {
		log.Fatal(err)
	}
	err = sem.Do(ctx, func(context.Context, *concurrency.Permit) error {
		fmt.Println("rendering again")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// no process renders
	// rendering again
}
