package middleware

import (
	"context"
	"sync/atomic"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/share"
)

// visit is the context of a request that began without a permit, in an outage.
type visit struct {
	context.Context
	stay   *stay                              // under a share, or nil
	permit atomic.Pointer[concurrency.Permit] // that it has got since then
}

type visitKey struct{}

// Value returns the visit itself for visitKey.
func (v *visit) Value(key any) any {
	if key == (visitKey{}) {
		return v
	}
	return v.Context.Value(key)
}

// FromContext returns the permit under which a request runs: that of the innermost limiter.
func FromContext(ctx context.Context) (*concurrency.Permit, bool) {
	p, ok := concurrency.FromContext(ctx)
	if v := innermost(ctx, p); v != nil {
		p = v.permit.Load()
		return p, p != nil
	}
	return p, ok
}

// Counted reports whether a request counts against the limit of the innermost limiter, under a permit
// or a share, with a channel that is closed when it has lost its permit.
func Counted(ctx context.Context) (lost <-chan struct{}, ok bool) {
	p, ok := concurrency.FromContext(ctx)
	switch v := innermost(ctx, p); {
	case v != nil && v.stay != nil:
		return v.stay.lost, true
	case v != nil || !ok:
		return nil, false
	}
	return p.Context().Done(), true
}

// innermost returns the visit of a context, unless the context has a permit within it.
func innermost(ctx context.Context, permit *concurrency.Permit) *visit {
	v, ok := ctx.Value(visitKey{}).(*visit)
	if !ok {
		return nil
	}
	if outer, _ := concurrency.FromContext(v.Context); outer != permit {
		return nil
	}
	return v
}

// stays reports whether a context has a share, or a permit that took its place.
func stays(ctx context.Context, of *share.Share) bool {
	for {
		v, ok := ctx.Value(visitKey{}).(*visit)
		if !ok {
			return false
		}
		if v.stay != nil && v.stay.a.share == of && v.stay.counts(v) {
			return true
		}
		ctx = v.Context
	}
}
