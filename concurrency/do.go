package concurrency

import (
	"context"
	"errors"
)

// do runs fn under a permit and gives it back, however fn ends: by return, panic
// or runtime.Goexit.
func (p *Permit) do(ctx context.Context, fn func(context.Context, *Permit) error) (err error) {
	work, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(p.ctx, func() { cancel(context.Cause(p.ctx)) })
	defer func() {
		stop()
		cancel(nil)
		// If ctx has ended, the release goes on in the background; that
		// alone is no news for the caller.
		if released := p.Release(ctx); released != nil && (ctx.Err() == nil || errors.Is(released, ErrLost)) {
			err = errors.Join(err, released)
		}
	}()
	return fn(work, p)
}
