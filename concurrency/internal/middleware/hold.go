package middleware

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/door"
	"github.com/etcdkit/etcdkit/internal/hook"
)

// releaseWithin is how long the end of an outgoing call waits for etcd to confirm the release of its
// permit. The release then continues in the background.
const releaseWithin = 2 * time.Second

// longHold is how long an outgoing call holds its permit until that is reported. A call that its caller never
// ends holds it for as long as the process lives, and nothing else would show why the limit is full.
const longHold = 5 * time.Minute

// hold returns the context of a call under a permit, with the values that hooks have given the hold, and
// what ends the call.
func (a *Admission) hold(ctx context.Context, key string, p *concurrency.Permit, report func(error)) (context.Context, func(), error) {
	work, cancel := context.WithCancelCause(hook.With(ctx, p.Context()))
	unlink := context.AfterFunc(p.Context(), func() { cancel(context.Cause(p.Context())) })
	report = a.contained(key, report)
	unwatch := a.watch(key, p, report)
	leave := sync.OnceFunc(func() {
		defer cancel(nil) // not before the release: work would end with another cause than the permit's
		unlink()
		unwatch()
		if err := release(ctx, p); err != nil {
			report(err)
		}
	})
	forget := context.AfterFunc(ctx, func() {
		<-work.Done() // with the cause of ctx, and not by cancel
		leave()
	})
	return concurrency.NewContext(work, p), func() { forget(); leave() }, nil
}

// watch reports once, for all calls of the middleware, that a call has held its permit for long. What it returns
// ends that.
func (a *Admission) watch(key string, p *concurrency.Permit, report func(error)) (stop func()) {
	if a.reported.Load() {
		return func() {}
	}
	t := time.AfterFunc(longHold, func() {
		if p.Err() == nil && a.reported.CompareAndSwap(false, true) {
			report(fmt.Errorf("an outgoing call has held a permit of %q for %v: the body of its response was not closed, or its stream not received to its end; or it takes that long, and MaxHold in Options.Each would bound it (this is reported once)", key, longHold))
		}
	})
	return func() { t.Stop() }
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

// contained returns what reports the errors of a call that ends in the background, where a panic of ReportError would end
// the process.
func (a *Admission) contained(key string, report func(error)) func(error) {
	return func(err error) {
		door.In(a.Limiter.Key(key)).Contain("ReportError", func() { report(err) })
	}
}
