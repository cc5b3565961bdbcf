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

	"github.com/etcdkit/etcdkit/internal/join"
)

// CallTimeout bounds one call to etcd. A healthy cluster responds in milliseconds; its own
// limit for a request is 5 s and two election timeouts.
const CallTimeout = 5 * time.Second

// Call derives the ctx of one call to etcd. The call is bounded, and a member that sees no
// leader refuses it at once instead of holding it. The bound is a timer and no deadline in
// ctx: gRPC would send a deadline along, as a header that differs each time, and the server
// would time it as well.
func Call(ctx context.Context) (context.Context, context.CancelFunc) {
	// As clientv3.WithRequireLeader does, but without copying what ctx has.
	ctx = metadata.AppendToOutgoingContext(ctx, rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)
	ctx, cancel := context.WithCancel(ctx)
	t := time.AfterFunc(CallTimeout, cancel)
	return ctx, func() { t.Stop(); cancel() }
}

// Backoff waits longer after each failure in a row, from about 10 ms, or Least if that is set, to about a
// second, or to Most if that is set. Jitter keeps a fleet from retrying in step. The zero value is ready.
// It is not safe for concurrent use.
type Backoff struct {
	Least, Most time.Duration
	failures    int
}

// Wait waits before the next try. If ctx ends first, Wait returns ctx's error, joined with
// last, the last error of what is being repeated. It leaves out a last that says only that a
// call was cut short: the bound of a call (see Call) must not be taken for the caller's ctx. After a refused
// login the pauses grow to DeniedPause.
func (b *Backoff) Wait(ctx context.Context, last error) error {
	if NoLogin(last) {
		b.Most = max(b.Most, DeniedPause)
	}
	select {
	case <-time.After(b.Next()):
		return nil
	case <-ctx.Done():
	}
	return joinCause(ctx.Err(), last)
}

// DeniedPause is the longest pause between tries of what etcd denies. An operator has to act, and each login
// costs etcd as much as a hundred requests.
const DeniedPause = 30 * time.Second

// Next counts a failure, and returns how long to wait.
func (b *Backoff) Next() time.Duration {
	d := cmp.Or(b.Least, 10*time.Millisecond) << min(b.failures, 20)
	d = min(d, cmp.Or(b.Most, 1280*time.Millisecond))
	b.failures++
	return d/2 + rand.N(d)
}

// joinCause joins a ctx's error with the last error of what was being repeated, if that says
// more.
func joinCause(ended, last error) error {
	if unsent, ok := errors.AsType[unsentError](last); ok && unsent.cause != context.Canceled && unsent.cause != context.DeadlineExceeded { //nolint:errorlint // not what wraps them
		return join.Errors(ended, last)
	}
	if errors.Is(last, context.Canceled) || errors.Is(last, context.DeadlineExceeded) || status.Code(last) == codes.Canceled {
		return ended
	}
	return join.Errors(ended, last)
}

// Reset forgets the failures.
func (b *Backoff) Reset() { b.failures = 0 }
