package middleware

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
)

// releaseWithin is how long the end of an outgoing call waits for etcd to confirm the release of its
// permit. The release then continues in the background.
const releaseWithin = 2 * time.Second

// visit is the context of one request under a permit.
type visit struct {
	context.Context
	a      *Admission
	permit *concurrency.Permit
	fn     func(context.Context)
	ran    bool
}

type visitKey struct{}

// Value returns the visit itself for visitKey.
func (v *visit) Value(key any) any {
	if key == (visitKey{}) {
		return v
	}
	return v.Context.Value(key)
}

func (v *visit) work(ctx context.Context, p *concurrency.Permit) error {
	v.Context, v.permit, v.ran = ctx, p, true
	v.a.outage.answered()
	v.fn(v)
	return nil
}

// FromContext returns the permit under which a request runs: that of the innermost limiter.
func FromContext(ctx context.Context) (*concurrency.Permit, bool) {
	v, ok := ctx.Value(visitKey{}).(*visit)
	if !ok {
		return nil, false
	}
	return v.permit, true
}

// holds reports whether a context has a permit of this limiter, which has not ended.
func (a *Admission) holds(ctx context.Context) bool {
	if !a.same {
		return false
	}
	for {
		v, ok := ctx.Value(visitKey{}).(*visit)
		if !ok {
			return false
		}
		if v.a.same && v.a.Limiter == a.Limiter && v.permit != nil && v.permit.Err() == nil {
			return true
		}
		ctx = v.Context
	}
}

// hold returns the context of a call under a permit, and what ends the call.
func (a *Admission) hold(ctx context.Context, p *concurrency.Permit, report func(error)) (context.Context, func(), error) {
	work, cancel := context.WithCancelCause(ctx)
	unlink := context.AfterFunc(p.Context(), func() { cancel(context.Cause(p.Context())) })
	leave := sync.OnceFunc(func() {
		defer cancel(nil) // not before the release: work would end with another cause than the permit's
		unlink()
		bounded, stop := context.WithTimeout(ctx, releaseWithin)
		defer stop()
		if err := p.Release(bounded); errors.Is(err, concurrency.ErrLost) {
			report(err)
		}
	})
	forget := context.AfterFunc(ctx, leave)
	return &visit{Context: work, a: a, permit: p}, func() { forget(); leave() }, nil
}
