package idemgrpc

import (
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/etcdkit/etcdkit/idempotency/internal/middleware"
)

// Domain is the domain of the ErrorInfo in the interceptors' own answers.
const Domain = "idempotency.etcdkit"

// The reasons of the ErrorInfo in the interceptors' own answers.
const (
	ReasonMissing     = "IDEMPOTENCY_KEY_MISSING"   // INVALID_ARGUMENT
	ReasonMalformed   = "IDEMPOTENCY_KEY_MALFORMED" // INVALID_ARGUMENT
	ReasonPayload     = "PAYLOAD"                   // INVALID_ARGUMENT: the message cannot be compared
	ReasonScope       = "SCOPE"                     // PERMISSION_DENIED: Options.Scope has returned an empty scope
	ReasonInProgress  = "IN_PROGRESS"               // ABORTED: a duplicate is in progress, or the outcome is being recorded
	ReasonConflict    = "CONFLICT"                  // ABORTED: a condition given to Attempt.Attach is not met; the handler has run
	ReasonReused      = "REUSED"                    // FAILED_PRECONDITION: the key was used with another message
	ReasonUnknown     = "UNKNOWN"                   // FAILED_PRECONDITION: an attempt was lost, and an operator has to call Store.Resolve
	ReasonFailed      = "FAILED"                    // FAILED_PRECONDITION: the call has failed before, and the failure was recorded
	ReasonNotKept     = "NOT_KEPT"                  // FAILED_PRECONDITION: the call was done, and its response was not kept
	ReasonStream      = "STREAM"                    // UNIMPLEMENTED: a stream of a method that needs a key
	ReasonInternal    = "INTERNAL"                  // INTERNAL: an option is wrong, or etcd refuses the operations given to Attempt.Attach
	ReasonUnreadable  = "UNREADABLE"                // INTERNAL: the recorded outcome cannot be read
	ReasonScopeFull   = "SCOPE_FULL"                // RESOURCE_EXHAUSTED: the scope has as many records as the store allows
	ReasonUnavailable = "UNAVAILABLE"               // UNAVAILABLE: etcd is unavailable, or the session is closed
	ReasonFull        = "FULL"                      // UNAVAILABLE: etcd is near its quota, and no new call begins
)

// MetadataRef is the key, in the metadata of the ErrorInfo, of the reference of the call's record,
// for Store.Get, Resolve and Delete. It is set if an operator has to act, with ReasonUnknown and
// ReasonUnreadable.
const MetadataRef = "ref"

// MetadataNote is the key, in that metadata, of the operator's text for the call. It is set with
// ReasonUnknown if Options.ShowNote is.
const MetadataNote = "note"

// answers are the status codes by reason, and the texts of the refusals.
var answers = map[string]struct {
	code codes.Code
	text string
}{
	ReasonMissing:     {code: codes.InvalidArgument},
	ReasonMalformed:   {code: codes.InvalidArgument},
	ReasonPayload:     {code: codes.InvalidArgument},
	ReasonScope:       {code: codes.PermissionDenied},
	ReasonInProgress:  {codes.Aborted, "a call with this key is in progress, or its outcome is not recorded yet"},
	ReasonConflict:    {codes.Aborted, "a condition of the call is no longer met: the call has executed, and what it was to write together with its outcome was not written"},
	ReasonReused:      {codes.FailedPrecondition, "the key was used with another message"},
	ReasonUnknown:     {codes.FailedPrecondition, "it is not known what an earlier attempt has done: the call does not execute again until an operator has resolved it"},
	ReasonFailed:      {codes.FailedPrecondition, "the call has failed, and does not execute again"},
	ReasonNotKept:     {codes.FailedPrecondition, "the call was done, and its response was not kept"},
	ReasonStream:      {code: codes.Unimplemented},
	ReasonInternal:    {codes.Internal, "the server cannot begin the call, or cannot record its outcome"},
	ReasonUnreadable:  {codes.Internal, "the recorded response cannot be read: an operator has to look at its record"},
	ReasonScopeFull:   {codes.ResourceExhausted, "too many calls of this client are recorded"},
	ReasonUnavailable: {codes.Unavailable, "the store of idempotency keys is unavailable"},
	ReasonFull:        {codes.Unavailable, "the store of idempotency keys is nearly full: no new call begins"},
}

// refusal returns the answer to a call that cannot be begun as it is.
func refusal(reason, text string) error { return answer(reason, text, middleware.Refusal{}) }

// refusalOf returns the answer for a refusal.
func refusalOf(by middleware.Refusal) error {
	reason := reasonOf(by.Reason)
	return answer(reason, answers[reason].text, by)
}

// reasonOf returns the reason of a refusal that all transports have, in the form of an ErrorInfo.
func reasonOf(by middleware.Reason) string {
	return strings.ToUpper(strings.ReplaceAll(string(by), "-", "_"))
}

func answer(reason, text string, by middleware.Refusal) error {
	info := &errdetails.ErrorInfo{Reason: reason, Domain: Domain}
	if by.Ref != "" {
		info.Metadata = map[string]string{MetadataRef: string(by.Ref)}
	}
	if by.Note != "" {
		info.Metadata[MetadataNote] = by.Note
	}
	details := []protoadapt.MessageV1{info}
	if by.RetryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(by.RetryAfter)})
	}
	code := answers[reason].code
	st, err := status.New(code, "idempotency: "+text).WithDetails(details...)
	if err != nil {
		return status.Error(code, text)
	}
	return st.Err()
}
