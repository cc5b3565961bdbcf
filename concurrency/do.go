package concurrency

import "context"

// do runs fn under a permit and releases it, however fn ends: by return, panic or
// runtime.Goexit.
func (p *Permit) do(ctx context.Context, fn func(context.Context, *Permit) error) (err error) {
	work, cancel := context.WithCancelCause(p.working(ctx))
	stop := context.AfterFunc(p.Context(), func() { cancel(context.Cause(p.Context())) })
	defer func() {
		stop()
		cancel(nil)
		if lost := p.releaseAfterWork(ctx); lost != nil {
			err = withEnd(err, lost)
		}
	}()
	if p.source != nil {
		work = NewContext(work, p)
	}
	return fn(work, p)
}
