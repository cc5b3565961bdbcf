package idemgrpc

import (
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/etcdkit/etcdkit/idempotency"
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

// refusal is an answer of the interceptors' own. After is for RetryInfo, if it is above 0.
func refusal(code codes.Code, reason, text string, after time.Duration) error {
	return refusalOf("", code, reason, text, after)
}

// refusalOf is an answer about the call with that reference.
func refusalOf(ref idempotency.Ref, code codes.Code, reason, text string, after time.Duration) error {
	st := status.New(code, "idempotency: "+text)
	info := &errdetails.ErrorInfo{Reason: reason, Domain: Domain}
	if ref != "" {
		info.Metadata = map[string]string{MetadataRef: string(ref)}
	}
	var err error
	if after > 0 {
		st, err = st.WithDetails(info, &errdetails.RetryInfo{RetryDelay: durationpb.New(after)})
	} else {
		st, err = st.WithDetails(info)
	}
	if err != nil {
		return status.Error(code, text)
	}
	return st.Err()
}
