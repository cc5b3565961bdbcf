package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// progress shows on a terminal how far long work has come, in one line that is erased at its end. On
// anything else it shows nothing.
type progress struct {
	out   io.Writer // nil without a terminal
	shown time.Time // or since when it could be
	drawn bool
}

func (a *app) progress() *progress {
	if !terminal(a.std.Err) {
		return &progress{}
	}
	return &progress{out: a.std.Err, shown: time.Now()} // what is quick shows nothing
}

// set replaces the line, at most ten times a second.
func (p *progress) set(format string, args ...any) {
	if p.out == nil || time.Since(p.shown) < 100*time.Millisecond {
		return
	}
	p.shown, p.drawn = time.Now(), true
	fmt.Fprintf(p.out, "\r\x1b[K"+format, args...)
}

// end erases the line.
func (p *progress) end() {
	if p.drawn {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.drawn = false
	}
}

// readsAtOnce is how many of many names are read at the same time.
const readsAtOnce = 8

// readEach calls read for each number below n, several at the same time, and shows on a terminal how far it has come.
// After an error it begins no further one, and returns the first.
func (a *app) readEach(n int, what string, read func(i int) error) error {
	p := a.progress()
	defer p.end()
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
		p.set("%d of %d %s read", done, n, what)
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

// patience returns a ctx that ends if alive is not called for --command-timeout: for work that may take
// long as long as it advances.
func (a *app) patience(ctx context.Context) (_ context.Context, alive func(), cancel context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	t := time.AfterFunc(a.etcd.timeout, func() {
		end(fmt.Errorf("no answer for %v: %w", a.etcd.timeout, context.DeadlineExceeded))
	})
	return ctx, func() { t.Reset(a.etcd.timeout) }, func() { t.Stop(); end(nil) }
}

// because adds to an error why its ctx has ended, if it has.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w (%w)", err, cause)
	}
	return err
}
