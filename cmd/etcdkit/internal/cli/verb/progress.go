package verb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
)

// Progress returns what shows on standard error how far the verb has come.
func (c *Call) Progress() *output.Progress { return output.NewProgress(c.Std.Err) }

// readsAtOnce is how many of many names are read at the same time.
const readsAtOnce = 8

// ReadEach calls read for each number below n, several at the same time, and shows on a terminal how far it has come.
// It returns an error, the first of read, after which it begins no further one.
func (c *Call) ReadEach(n int, what string, read func(i int) error) error {
	p := c.Progress()
	defer p.End()
	var mu sync.Mutex
	var failed error
	done := 0
	var reading sync.WaitGroup
	slots := make(chan struct{}, readsAtOnce)
	for i := range n {
		slots <- struct{}{}
		mu.Lock()
		if failed != nil {
			mu.Unlock()
			break
		}
		p.Set("%d of %d %s read", done, n, what)
		mu.Unlock()
		reading.Go(func() {
			err := read(i)
			<-slots
			mu.Lock()
			defer mu.Unlock()
			done++
			failed = cmp.Or(failed, err)
		})
	}
	reading.Wait()
	return failed
}

// Patience returns a ctx that ends if alive is not called for --command-timeout: for work that may take
// long as long as it advances.
func (c *Call) Patience(ctx context.Context) (_ context.Context, alive func(), cancel context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	t := time.AfterFunc(c.Etcd.Timeout, func() {
		end(fmt.Errorf("no answer for %v: %w", c.Etcd.Timeout, context.DeadlineExceeded))
	})
	return ctx, func() { t.Reset(c.Etcd.Timeout) }, func() { t.Stop(); end(nil) }
}

// Because returns an error with the reason why its ctx has ended, if it has, and otherwise as it is.
func Because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w (%w)", err, cause)
	}
	return err
}
