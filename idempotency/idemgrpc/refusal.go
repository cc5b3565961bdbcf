package idemgrpc

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/etcdkit/etcdkit/idempotency/internal/middleware"
)

// Domain is that of the ErrorInfo in the interceptors' own answers.
const Domain = "idempotency.etcdkit"

// Reasons tell the interceptors' own answers apart.
const (
	ReasonMissing     = "IDEMPOTENCY_KEY_MISSING"   // INVALID_ARGUMENT
	ReasonMalformed   = "IDEMPOTENCY_KEY_MALFORMED" // INVALID_ARGUMENT
	ReasonPayload     = "PAYLOAD"                   // INVALID_ARGUMENT: the message cannot be compared
	ReasonScope       = "SCOPE"                     // PERMISSION_DENIED: nobody knows whose call it is
	ReasonInProgress  = "IN_PROGRESS"               // ABORTED: a duplicate is being worked on, or the outcome being recorded
	ReasonConflict    = "CONFLICT"                  // ABORTED: a condition of the handler's commit was not met; the handler has run
	ReasonReused      = "REUSED"                    // FAILED_PRECONDITION: the key was used with another message
	ReasonUnknown     = "UNKNOWN"                   // FAILED_PRECONDITION: an attempt was lost, and somebody has to find out
	ReasonFailed      = "FAILED"                    // FAILED_PRECONDITION: it has failed before, and that was remembered
	ReasonNotKept     = "NOT_KEPT"                  // FAILED_PRECONDITION: it was done, and its response was not kept
	ReasonStream      = "STREAM"                    // UNIMPLEMENTED: streams are not guarded
	ReasonInternal    = "INTERNAL"                  // INTERNAL: the interceptor is used or set up in a wrong way, or etcd takes no such operations as the handler's
	ReasonUnreadable  = "UNREADABLE"                // INTERNAL: what is recorded cannot be read by this release
	ReasonScopeFull   = "SCOPE_FULL"                // RESOURCE_EXHAUSTED: the scope has as many records as the store allows
	ReasonUnavailable = "UNAVAILABLE"               // UNAVAILABLE: the store cannot be asked
	ReasonFull        = "FULL"                      // UNAVAILABLE: the store begins no new calls
)

// MetadataRef is the name, in the metadata of the ErrorInfo, of the reference of the call's
// record, for Store.Get, Resolve and Delete. It is there where an operator has to act: with
// ReasonUnknown and ReasonUnreadable.
const MetadataRef = "ref"

// answers are the status codes of the reasons, and the texts of those whose answers all have
// the same.
var answers = map[string]struct {
	code codes.Code
	text string
}{
	ReasonMissing:     {code: codes.InvalidArgument},
	ReasonMalformed:   {code: codes.InvalidArgument},
	ReasonPayload:     {code: codes.InvalidArgument},
	ReasonScope:       {code: codes.PermissionDenied},
	ReasonInProgress:  {codes.Aborted, "a call with this key is in progress, or its outcome is not recorded yet"},
	ReasonConflict:    {codes.Aborted, "a change has come between: the handler has run, and the operations that it gave to Attempt.Attach were not done"},
	ReasonReused:      {codes.FailedPrecondition, "the key was used with another message"},
	ReasonUnknown:     {codes.FailedPrecondition, "an earlier attempt was interrupted, and its outcome is unknown"},
	ReasonFailed:      {codes.FailedPrecondition, "the call has failed, and is not tried again"},
	ReasonNotKept:     {codes.FailedPrecondition, "the call was done, and its response was not kept"},
	ReasonStream:      {code: codes.Unimplemented},
	ReasonInternal:    {codes.Internal, "the call cannot be begun, or its outcome cannot be recorded"},
	ReasonUnreadable:  {codes.Internal, "the recorded response cannot be read: an operator has to read or delete its record"},
	ReasonScopeFull:   {codes.ResourceExhausted, "too many calls of this client are remembered"},
	ReasonUnavailable: {codes.Unavailable, "the store cannot be asked"},
	ReasonFull:        {codes.Unavailable, "no new calls are begun"},
}

// reasons are those of the refusals that the middlewares of all transports have.
var reasons = map[middleware.Reason]string{
	middleware.InProgress:  ReasonInProgress,
	middleware.Conflict:    ReasonConflict,
	middleware.Reused:      ReasonReused,
	middleware.Unknown:     ReasonUnknown,
	middleware.Failed:      ReasonFailed,
	middleware.NotKept:     ReasonNotKept,
	middleware.Internal:    ReasonInternal,
	middleware.Unreadable:  ReasonUnreadable,
	middleware.ScopeFull:   ReasonScopeFull,
	middleware.Unavailable: ReasonUnavailable,
	middleware.Full:        ReasonFull,
}

// refusal returns an answer of the interceptors' own.
func refusal(reason, text string) error {
	return answer(reason, text, &errdetails.ErrorInfo{Reason: reason, Domain: Domain})
}

// refusalOf returns the answer for a refusal.
func refusalOf(by middleware.Refusal) error {
	reason := reasons[by.Reason]
	info := &errdetails.ErrorInfo{Reason: reason, Domain: Domain}
	if by.Ref != "" {
		info.Metadata = map[string]string{MetadataRef: string(by.Ref)}
	}
	if by.RetryAfter > 0 {
		return answer(reason, answers[reason].text, info, &errdetails.RetryInfo{RetryDelay: durationpb.New(by.RetryAfter)})
	}
	return answer(reason, answers[reason].text, info)
}

func answer(reason, text string, details ...protoadapt.MessageV1) error {
	code := answers[reason].code
	st, err := status.New(code, "idempotency: "+text).WithDetails(details...)
	if err != nil {
		return status.Error(code, text)
	}
	return st.Err()
}
