package idempotency

import "context"

// Run calls fn, which does the work, and settles the attempt by how that ends, as Do does:
// a result is recorded; of an error OnError decides, of a panic OnPanic, and both go on to
// the caller. It is for those who translate between Begin and a transport.
//
// It returns fn's error, joined with what went wrong about settling; or what Commit returns,
// such as ErrNotRecorded and ErrFenced. If fn has settled the attempt itself, it returns
// fn's error. ctx's end does not end it; it takes 5 seconds to record at most.
func (a *Attempt) Run(ctx context.Context, fn func(ctx context.Context) ([]byte, error)) error {
	return a.run(ctx, func() ([]byte, error) { return fn(a.ctx) })
}

// Conditional tells whether With was given anything. If so, an outcome that is still being
// written after ErrNotRecorded may be refused in the end, and the attempt be lost by that.
func (a *Attempt) Conditional() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked
}
