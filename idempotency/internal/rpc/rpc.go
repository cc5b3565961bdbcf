// Package rpc has what idemhttp and idemgrpc share of gRPC, gRPC-Web and Connect: the middlewares' own
// answers, each a status with a code, a reason and details; and the form in which messages are compared.
package rpc

import (
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/etcdkit/etcdkit/idempotency/internal/middleware"
)

// Domain is the domain of the ErrorInfo. MetadataRef and MetadataNote are the names, in its metadata, of a
// record's reference and of the operator's text.
const (
	Domain       = "idempotency.etcdkit"
	MetadataRef  = "ref"
	MetadataNote = "note"
)

// Status is an error of a call.
type Status = status.Status

// answer is the code, the reason in the ErrorInfo and the text of a refusal.
type answer struct {
	code         codes.Code
	reason, text string
}

// answers are the answers by reason.
var answers = map[middleware.Reason]answer{
	middleware.Missing:     {codes.InvalidArgument, "IDEMPOTENCY_KEY_MISSING", "the call has no idempotency key"},
	middleware.Malformed:   {codes.InvalidArgument, "IDEMPOTENCY_KEY_MALFORMED", "the idempotency key is malformed"},
	middleware.Body:        {codes.InvalidArgument, "PAYLOAD", "the message cannot be read or compared"},
	middleware.Scope:       {codes.PermissionDenied, "SCOPE", "the call has no scope"},
	middleware.InProgress:  {codes.Aborted, "IN_PROGRESS", "a call with this key is in progress, or its outcome is not recorded yet"},
	middleware.Conflict:    {codes.Aborted, "CONFLICT", "a condition of the call is no longer met: the call has executed, and what it was to write together with its outcome was not written"},
	middleware.Reused:      {codes.FailedPrecondition, "REUSED", "the key was used with another message"},
	middleware.Unknown:     {codes.FailedPrecondition, "UNKNOWN", "it is not known what an earlier attempt has done: the call does not execute again until an operator has resolved it"},
	middleware.Failed:      {codes.FailedPrecondition, "FAILED", "the call has failed, and does not execute again"},
	middleware.NotKept:     {codes.FailedPrecondition, "NOT_KEPT", "the call was done, and its response was not kept"},
	middleware.Stream:      {codes.Unimplemented, "STREAM", "streams cannot execute once for each key"},
	middleware.TooLarge:    {codes.ResourceExhausted, "TOO_LARGE", "the message is too large"},
	middleware.Incomplete:  {codes.Unavailable, "INCOMPLETE", "the message has not arrived whole, and this call has not begun: an earlier one with its key may have executed, so repeat it with the same key"},
	middleware.Internal:    {codes.Internal, "INTERNAL", "the server cannot begin the call, or cannot record its outcome"},
	middleware.Unreadable:  {codes.Internal, "UNREADABLE", "the recorded response cannot be read: an operator has to look at its record"},
	middleware.ScopeFull:   {codes.ResourceExhausted, "SCOPE_FULL", "too many calls of this client are recorded"},
	middleware.Unavailable: {codes.Unavailable, "UNAVAILABLE", "the store of idempotency keys is unavailable"},
	middleware.Full:        {codes.Unavailable, "FULL", "the store of idempotency keys is nearly full: no new call begins"},
}

// Answer returns the answer for a refusal. Detail is added to its text if it is not empty.
func Answer(by middleware.Refusal, detail string) *Status {
	a := answers[by.Reason]
	info := &errdetails.ErrorInfo{Reason: a.reason, Domain: Domain}
	for name, value := range map[string]string{MetadataRef: string(by.Ref), MetadataNote: by.Note} {
		if value == "" {
			continue
		}
		if info.Metadata == nil {
			info.Metadata = make(map[string]string)
		}
		info.Metadata[name] = value
	}
	details := []protoadapt.MessageV1{info}
	if by.RetryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(by.RetryAfter)})
	}
	text := "idempotency: " + a.text
	if by.Reason == middleware.Conflict && by.Ref != "" {
		text += ", and it does not execute again until an operator has resolved it"
	}
	if detail != "" {
		text += ": " + strings.ToValidUTF8(detail, "\uFFFD")
	}
	bare := status.New(a.code, text)
	st, err := bare.WithDetails(details...)
	if err != nil {
		return bare
	}
	return st
}
