package testkit

import (
	"context"
	"sync"
	"time"
)

// Deadline returns a ctx whose deadline passes when the test calls pass, and not earlier on a busy machine.
func Deadline(ctx context.Context) (_ context.Context, pass func()) {
	d := &deadline{Context: ctx, done: make(chan struct{})}
	context.AfterFunc(ctx, func() { d.end(ctx.Err()) })
	return d, func() { d.end(context.DeadlineExceeded) }
}

// deadline has a Done of its own: what is derived from it takes the error of this ctx, and not of the one that it embeds.
type deadline struct {
	context.Context
	done chan struct{}
	mu   sync.Mutex
	err  error
}

func (d *deadline) end(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.err = err
		close(d.done)
	}
}

// Deadline returns a time that does not come: nothing gives up before.
func (d *deadline) Deadline() (time.Time, bool) { return time.Now().Add(time.Hour), true }

func (d *deadline) Done() <-chan struct{} { return d.done }

func (d *deadline) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}
