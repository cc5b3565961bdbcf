package middleware

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/hook"
)

// releaseWithin is how long the end of an outgoing call waits for etcd to confirm the release of its
// permit. The release then continues in the background.
const releaseWithin = 2 * time.Second

// hold returns the context of a call under a permit, with the values that hooks have given the hold, and
// what ends the call.
func (a *Admission) hold(ctx context.Context, p *concurrency.Permit, report func(error)) (context.Context, func(), error) {
	work, cancel := context.WithCancelCause(hook.With(ctx, p.Context()))
	unlink := context.AfterFunc(p.Context(), func() { cancel(context.Cause(p.Context())) })
	leave := sync.OnceFunc(func() {
		defer cancel(nil) // not before the release: work would end with another cause than the permit's
		unlink()
		if err := release(ctx, p); err != nil {
			report(err)
		}
	})
	forget := context.AfterFunc(ctx, leave)
	return concurrency.NewContext(work, p), func() { forget(); leave() }, nil
}

// release releases a permit, and returns an error only if the permit was lost.
func release(ctx context.Context, p *concurrency.Permit) error {
	bounded, stop := context.WithTimeout(ctx, releaseWithin)
	defer stop()
	if err := p.Release(bounded); errors.Is(err, concurrency.ErrLost) {
		return err
	}
	return nil
}
