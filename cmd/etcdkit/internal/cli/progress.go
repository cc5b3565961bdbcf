package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// progress shows on a terminal how far long work has come, in one line that is erased at its end. On
// anything else it shows nothing.
type progress struct {
	out   io.Writer // nil without a terminal
	shown time.Time
}

func (a *app) progress() *progress {
	if !terminal(a.std.Err) {
		return &progress{}
	}
	return &progress{out: a.std.Err}
}

// set replaces the line, at most ten times a second.
func (p *progress) set(format string, args ...any) {
	if p.out == nil || time.Since(p.shown) < 100*time.Millisecond {
		return
	}
	p.shown = time.Now()
	fmt.Fprintf(p.out, "\r\x1b[K"+format, args...)
}

// end erases the line.
func (p *progress) end() {
	if p.out != nil && !p.shown.IsZero() {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.shown = time.Time{}
	}
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
