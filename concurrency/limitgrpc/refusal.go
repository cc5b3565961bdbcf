package limitgrpc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/internal/middleware"
)

// Domain is the domain of the ErrorInfo in the interceptors' own answers.
const Domain = "concurrency.etcdkit"

// The reasons of the ErrorInfo in the interceptors' own answers.
const (
	ReasonHeld         = "HELD"          // ABORTED: another call has the ID given in Options.Each
	ReasonKeyFull      = "KEY_FULL"      // RESOURCE_EXHAUSTED: as many calls of the key run as its limit allows
	ReasonInternal     = "INTERNAL"      // INTERNAL: an option is wrong, or a limit differs from the stored one
	ReasonLost         = "LOST"          // UNKNOWN: the permit was lost while the call ran; UNAVAILABLE: its place in the queue was
	ReasonRateExceeded = "RATE_EXCEEDED" // UNAVAILABLE: the fleet may not begin another call now (Options.Rate)
	ReasonTotalFull    = "TOTAL_FULL"    // UNAVAILABLE: as many calls of all keys run as the total, or the limit of concurrency.Single, allows
	ReasonUnavailable  = "UNAVAILABLE"   // UNAVAILABLE: etcd does not answer, the session is closed, or there are too many requests or keys
)

// answers are the answers by the reason that all transports have. Ended has none: the call's context
// says how it has ended.
var answers = map[middleware.Reason]struct {
	reason string
	code   codes.Code
	text   string
}{
	middleware.Held:         {ReasonHeld, codes.Aborted, "a call with this ID is running"},
	middleware.KeyFull:      {ReasonKeyFull, codes.ResourceExhausted, "too many calls of this key are running"},
	middleware.Internal:     {ReasonInternal, codes.Internal, "the limit of the call cannot be determined"},
	middleware.Lost:         {ReasonLost, codes.Unavailable, "the call has lost its place in the queue, and has not begun"},
	middleware.RateExceeded: {ReasonRateExceeded, codes.Unavailable, "the service has begun too many calls"},
	middleware.TotalFull:    {ReasonTotalFull, codes.Unavailable, "the service is at its capacity"},
	middleware.Unavailable:  {ReasonUnavailable, codes.Unavailable, "the limiter is unavailable"},
}

// lostPermit is the text of middleware.Lost for a call that had begun. Its code is UNKNOWN, which nothing repeats by default:
// retries and proxies repeat UNAVAILABLE, RESOURCE_EXHAUSTED and CANCELLED, and clients of idemgrpc ABORTED.
const lostPermit = "the call was interrupted, and may have taken effect"

// refused is a status that keeps the error behind it, for callers in this process.
type refused struct {
	*status.Status
	err error
}

// Error returns the text of the status.
func (r *refused) Error() string { return r.Status.Err().Error() }

// GRPCStatus returns the status that the client gets.
func (r *refused) GRPCStatus() *status.Status { return r.Status }

func (r *refused) Unwrap() error { return r.err }

// refuse reports an error of Run or Acquire, if an operator should know it, and returns its answer. ran says whether the
// handler, or what sends the call, was called. A server's answer has a trailer.
func (c *config) refuse(ctx context.Context, key, method string, ran bool, err error) error {
	by := c.shared.Refuse(ctx, key, ran, err)
	if by.Report {
		c.ReportError(ctx, method, err)
	}
	if !c.sends && by.Reason != middleware.Ended {
		_ = grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", pushback(by.RetryAfter)))
	}
	return c.answer(ctx, by, ran, err)
}

// pushback is when gRPC's own retry policy, which does not read RetryInfo, sends a call again: in milliseconds, and never for
// -1, as gRPC's proposal of client retries says.
func pushback(after time.Duration) string {
	if after == 0 {
		return "-1"
	}
	return strconv.FormatInt(int64((after+time.Millisecond-1)/time.Millisecond), 10)
}

// answer returns the answer of a refusal, for an error of Run or Acquire.
func (c *config) answer(ctx context.Context, by middleware.Refusal, ran bool, err error) error {
	prefix := "concurrency: "
	if c.sends && !ran {
		prefix, err = prefix+ErrNotSent.Error()+": ", fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	if by.Reason == middleware.Ended {
		st := status.FromContextError(ctx.Err())
		if c.sends && !ran {
			st = status.New(st.Code(), prefix+st.Message())
		}
		return &refused{st, err}
	}
	a := answers[by.Reason]
	if ran {
		a.code, a.text = codes.Unknown, lostPermit
	}
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: a.reason, Domain: Domain}}
	if by.RetryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(by.RetryAfter)})
	}
	st, bad := status.New(a.code, prefix+a.text).WithDetails(details...)
	if bad != nil {
		st = status.New(a.code, a.text)
	}
	return &refused{st, err}
}

// interrupted reports whether the end of its context explains an error of a call.
func interrupted(err error) bool {
	return err != nil && (errors.Is(err, concurrency.ErrLost) || errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled)
}
