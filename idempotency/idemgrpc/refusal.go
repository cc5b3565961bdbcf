package idemgrpc

import (
	"github.com/etcdkit/etcdkit/idempotency/internal/middleware"
	"github.com/etcdkit/etcdkit/idempotency/internal/rpc"
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
// for Store.Get, Resolve and Delete. It is set if an operator has to act: with ReasonUnknown and
// ReasonUnreadable, and with ReasonConflict under idempotency.Refuse, where a repetition gets ReasonUnknown.
const MetadataRef = "ref"

// MetadataNote is the key, in that metadata, of the operator's text for the call. It is set with
// ReasonUnknown if Options.ShowNote is.
const MetadataNote = "note"

// refusal returns the answer to a call that cannot be begun as it is. Detail is added to its text.
func refusal(reason middleware.Reason, detail string) error {
	return rpc.Answer(middleware.Refusal{Reason: reason}, detail).Err()
}

// refusalOf returns the answer for a refusal.
func refusalOf(by middleware.Refusal) error { return rpc.Answer(by, "").Err() }
