package etcdfake_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// etcd is away for a minute. Calls fail within their bound and with a reason meanwhile;
// afterwards the same session serves them again.
func outage(t *testing.T, etcd *etcdfake.Server) {
	client := etcd.NewClient()
	sem, err := concurrency.NewSemaphore(session(t, client), "reports", 2, nil)
	ok(t, err)
	handle := func(bound time.Duration) error { // the code under test
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		return sem.Do(ctx, func(context.Context, *concurrency.Permit) error { return nil })
	}
	ok(t, handle(time.Second))

	client.Cut()
	back := time.Now().Add(time.Minute)
	for time.Now().Before(back) {
		begun := time.Now()
		if err := handle(2 * time.Second); !errors.Is(err, concurrency.ErrUnavailable) {
			t.Errorf("without etcd the handler returned %v, not ErrUnavailable", err)
		}
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("without etcd the handler took %v", took)
		}
		time.Sleep(10 * time.Second)
	}
	client.Heal()
	ok(t, handle(10*time.Second))
}

// etcd is away for a minute.
func Example_outage() {
	example(func(t *testing.T) { // here: func TestOutage(t *testing.T)
		etcdfake.Test(t, outage)
	})
	// Output: PASS
}
