package commit

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// CallTimeout bounds one call to etcd. A healthy cluster answers in
// milliseconds; its own limit for a request is 5 s and two election timeouts.
const CallTimeout = 5 * time.Second

// Call derives the ctx of one call to etcd: bounded, and answered at once by a
// member that sees no leader instead of held by it. The bound is a timer here and
// no deadline in ctx, which gRPC would send along, as a header that differs each
// time, and have the server time as well.
func Call(ctx context.Context) (context.Context, context.CancelFunc) {
	// As clientv3.WithRequireLeader does, but without copying what ctx has.
	ctx = metadata.AppendToOutgoingContext(ctx, rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)
	ctx, cancel := context.WithCancel(ctx)
	t := time.AfterFunc(CallTimeout, cancel)
	return ctx, func() { t.Stop(); cancel() }
}

// Backoff waits longer after each failure in a row, from about 10 ms to about a
// second, or to Most if that is set, with jitter so that a fleet does not strike in
// step. The zero value is ready; it is not safe for concurrent use.
type Backoff struct {
	Most     time.Duration
	failures int
}

// Wait waits once more. If ctx ends first it returns ctx's error, joined with the
// last one of what is being repeated, unless that says no more than that a call was
// cut short: its bound (see Call) is not the caller's ctx and must not look like it.
func (b *Backoff) Wait(ctx context.Context, last error) error {
	d := 10 * time.Millisecond << min(b.failures, 20)
	d = min(d, cmp.Or(b.Most, 1280*time.Millisecond))
	b.failures++
	t := time.NewTimer(d/2 + rand.N(d))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
	}
	return because(ctx.Err(), last)
}

// because joins a ctx's error with the last one of what was being repeated, if
// that says more.
func because(ended, last error) error {
	if errors.Is(last, context.Canceled) || errors.Is(last, context.DeadlineExceeded) || status.Code(last) == codes.Canceled {
		return ended
	}
	return errors.Join(ended, last)
}

// Reset forgets the failures.
func (b *Backoff) Reset() { b.failures = 0 }
