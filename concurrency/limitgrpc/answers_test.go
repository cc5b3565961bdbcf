package limitgrpc

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/share"
)

// stub is a limiter whose semaphores are not used.
type stub struct{}

func (*stub) Key(string) *concurrency.Semaphore { return nil }

// TestStatusCodes: each end of a call for a permit has one status, and each refusal that passes by
// itself says when to come back.
func TestStatusCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		err     error
		code    codes.Code
		reason  string
		least   time.Duration // of RetryInfo; 0 is none
		most    time.Duration
		reports bool
	}{
		{"key", &concurrency.FullError{Limit: 5, Used: 5}, codes.ResourceExhausted, ReasonKeyFull, time.Second, 2 * time.Second, false},
		{"key with an estimate", &concurrency.FullError{Limit: 5, Used: 5, Level: "key", RetryAfter: 20 * time.Second}, codes.ResourceExhausted, ReasonKeyFull, 20 * time.Second, 25 * time.Second, false},
		{"key with a long estimate", &concurrency.FullError{Limit: 5, Used: 5, RetryAfter: time.Hour}, codes.ResourceExhausted, ReasonKeyFull, 48 * time.Second, time.Minute, false},
		{"paused", &concurrency.FullError{}, codes.ResourceExhausted, ReasonKeyFull, 0, 0, false},
		{"total", &concurrency.FullError{Limit: 200, Used: 200, Level: "total"}, codes.Unavailable, ReasonTotalFull, time.Second, 2 * time.Second, false},
		{"paused total", &concurrency.FullError{Level: "total"}, codes.Unavailable, ReasonTotalFull, 0, 0, false},
		{"etcd is slow", errors.Join(&concurrency.FullError{Limit: 5}, share.ErrUnseen), codes.Unavailable, ReasonUnavailable, time.Second, 2 * time.Second, false},
		{"outage", &concurrency.UnavailableError{}, codes.Unavailable, ReasonUnavailable, time.Second, 2 * time.Second, true},
		{"session closed", concurrency.ErrClosed, codes.Unavailable, ReasonUnavailable, time.Second, 2 * time.Second, true},
		{"too many requests of the session", concurrency.ErrTooMany, codes.Unavailable, ReasonUnavailable, time.Second, 2 * time.Second, true},
		{"evicted while it waited", &concurrency.LostError{Cause: concurrency.ErrEvicted}, codes.Unavailable, ReasonLost, time.Second, 2 * time.Second, true},
		{"ID in use", &concurrency.HeldError{}, codes.Aborted, ReasonHeld, time.Second, 2 * time.Second, false},
		{"bad option, or a weight above a limit", concurrency.ErrInvalid, codes.Internal, ReasonInternal, 0, 0, true},
		{"another limit is stored", &concurrency.LimitMismatchError{}, codes.Internal, ReasonInternal, 0, 0, true},
		{"rate", &concurrency.RateExceededError{}, codes.Unavailable, ReasonRateExceeded, time.Second, 2 * time.Second, false},
		{"rate with an estimate", &concurrency.RateExceededError{Rate: concurrency.Rate{PerSecond: 5, Burst: 1}, RetryAfter: 20 * time.Second}, codes.Unavailable, ReasonRateExceeded, 20 * time.Second, 25 * time.Second, false},
		{"another rate is stored", &concurrency.RateMismatchError{}, codes.Internal, ReasonInternal, 0, 0, true},
		{"another error of etcd's", errors.New("out of space"), codes.Unavailable, ReasonUnavailable, time.Second, 2 * time.Second, true},
	} {
		reported := 0
		cfg, err := configure("interceptor", &stub{}, Options{
			Key:         func(context.Context, string) (string, bool) { return "acme", true },
			ReportError: func(context.Context, string, error) { reported++ },
		})
		require.NoError(t, err)
		cfg.shared.Check = func(context.Context, *concurrency.Semaphore, []concurrency.AcquireOption) (int64, error) {
			return 1, nil
		}
		cfg.shared.Do = func(*concurrency.Semaphore, context.Context, func(context.Context, *concurrency.Permit) error, ...concurrency.AcquireOption) error {
			return c.err
		}
		err = cfg.run(t.Context(), "acme", "/test/Method", func(context.Context) error {
			t.Error("the handler ran: " + c.name)
			return nil
		})
		require.Equal(t, c.code, status.Code(err), c.name)
		require.ErrorIs(t, err, c.err, c.name)
		require.Contains(t, err.Error(), "concurrency: ", c.name)
		require.NotContains(t, err.Error(), "may have taken effect", c.name)
		require.NotErrorIs(t, err, ErrNotSent, "it is a server's")
		var reason string
		var retry time.Duration
		for _, d := range status.Convert(err).Details() {
			switch d := d.(type) {
			case *errdetails.ErrorInfo:
				reason = d.Reason
			case *errdetails.RetryInfo:
				retry = d.RetryDelay.AsDuration()
			}
		}
		require.Equal(t, c.reason, reason, c.name)
		require.GreaterOrEqual(t, retry, c.least, c.name)
		require.LessOrEqual(t, retry, c.most, c.name)
		require.Equal(t, c.reports, reported == 1, c.name)
	}
}

// BenchmarkOverhead is what the interceptor costs besides its permit.
func BenchmarkOverhead(b *testing.B) {
	cfg, err := configure("interceptor", &stub{}, Options{Key: func(context.Context, string) (string, bool) { return "acme", true }})
	require.NoError(b, err)
	cfg.shared.Do = func(_ *concurrency.Semaphore, ctx context.Context, fn func(context.Context, *concurrency.Permit) error, _ ...concurrency.AcquireOption) error {
		return fn(ctx, nil)
	}
	handler := func(context.Context, any) (any, error) { return nil, nil }
	info := &grpc.UnaryServerInfo{FullMethod: "/test/Method"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := cfg.unary(b.Context(), nil, info, handler); err != nil {
			b.Fatal(err)
		}
	}
}
