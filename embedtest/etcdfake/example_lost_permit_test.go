package etcdfake_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// export is the code under test: it writes rows until it is done, or until its permit is lost.
func export(ctx context.Context, write func()) error {
	for range 1000 {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
			write()
		}
	}
	return nil
}

// The network of a process swallows everything in the middle of its work. The work ends
// before another process has the permit.
func lostPermit(t *testing.T, etcd *etcdfake.Server) {
	client, other := etcd.NewClient(), etcd.NewClient()
	mine, err := concurrency.NewMutex(session(t, client), "export")
	ok(t, err)
	theirs, err := concurrency.NewMutex(session(t, other), "export")
	ok(t, err)

	var written time.Time
	done := make(chan error, 1)
	go func() {
		done <- mine.Do(t.Context(), func(ctx context.Context, _ *concurrency.Permit) error {
			client.Stall() // here: the middle of the work
			return export(ctx, func() { written = time.Now() })
		})
	}()
	if err := <-done; !errors.Is(err, concurrency.ErrLost) {
		t.Errorf("the work ended with %v, not with ErrLost", err)
	}
	permit, err := theirs.Lock(t.Context())
	ok(t, err)
	if next := time.Now(); !written.Before(next) {
		t.Errorf("the last row was written at %v, the next holder began at %v", written, next)
	}
	ok(t, permit.Release(t.Context()))
}

// Lose the permit in the middle of a handler.
func Example_lostPermit() {
	example(func(t *testing.T) { // here: func TestLostPermit(t *testing.T)
		etcdfake.Test(t, lostPermit)
	})
	// Output: PASS
}
