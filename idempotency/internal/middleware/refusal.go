package middleware

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/internal/unclaimed"
	"github.com/etcdkit/etcdkit/internal/outage"
)

// Reason is why a middleware answers in place of the handler. The texts are the codes of
// idemhttp; package rpc has the form for clients of RPC.
type Reason string

// The reasons. Those before InProgress are found before a request begins.
const (
	Missing     Reason = "missing"     // no key
	Malformed   Reason = "malformed"   // the key is malformed
	Body        Reason = "body"        // the payload cannot be read or compared
	Incomplete  Reason = "incomplete"  // the payload has not arrived whole
	TooLarge    Reason = "too-large"   // the payload is too large
	Scope       Reason = "scope"       // Options.Scope has returned an empty scope
	Stream      Reason = "stream"      // a stream, where the transport executes none once
	InProgress  Reason = "in-progress" // a duplicate is in progress, or the outcome is being recorded
	Reused      Reason = "reused"      // the key was used with another payload
	Conflict    Reason = "conflict"    // a condition given to Attempt.Attach is not met; the handler has run
	Unknown     Reason = "unknown"     // an earlier attempt was lost; an operator has to resolve it
	Failed      Reason = "failed"      // a failure was recorded
	NotKept     Reason = "not-kept"    // the request was done, and its response was not kept
	Internal    Reason = "internal"    // the program or its settings are wrong
	Unreadable  Reason = "unreadable"  // the record cannot be read; an operator has to replace or delete it
	ScopeFull   Reason = "scope-full"  // the scope has as many records as the store allows
	Full        Reason = "full"        // etcd is near its quota
	Unavailable Reason = "unavailable" // the store cannot be reached
)

// retryAfter is when to repeat a request if nothing is known about when it can succeed.
const retryAfter = time.Second

// Refusal is the answer of a middleware in place of the handler's response.
type Refusal struct {
	Reason     Reason
	RetryAfter time.Duration   // 0 if the same request would get the same answer
	Ref        idempotency.Ref // of the record, where an operator has to act
	Note       string          // the request's, where clients may see it
	// Also says, of a Reused, that the payloads are equal, and only those of AlsoCompare differ.
	Also bool
	// Report says that an operator should know the error.
	Report bool
	// Open is not nil if the handler is to run without a claim: see RunUnclaimed.
	Open unclaimed.Run
}

// Refuse returns the answer to the request of a client with key k, for an error of Begin.
func (s Settings) Refuse(client context.Context, k idempotency.Key, err error) Refusal {
	var busy *idempotency.InProgressError
	var scope *idempotency.ScopeFullError
	var unknown *idempotency.UnknownError
	var other *idempotency.MismatchError
	switch {
	case errors.As(err, &busy):
		return Refusal{Reason: InProgress, RetryAfter: busy.RetryAfter}
	case errors.As(err, &other):
		return Refusal{Reason: Reused, Also: other.Also}
	case errors.As(err, &scope):
		return Refusal{Reason: ScopeFull, RetryAfter: scope.RetryAfter, Report: true}
	case errors.Is(err, idempotency.ErrInvalid):
		return Refusal{Reason: Internal, Report: true}
	case errors.As(err, &unknown):
		r := Refusal{Reason: Unknown, Ref: s.Store.Ref(k), Report: true}
		if s.ShowNote {
			r.Note = unknown.Note
		}
		return r
	case errors.Is(err, idempotency.ErrUnreadable):
		return Refusal{Reason: Unreadable, Ref: s.Store.Ref(k), Report: true}
	}
	left := client.Err() // that the client has left is not reported, unless etcd did not answer either
	r := Refusal{Reason: Unavailable, RetryAfter: retryAfter, Open: openFor(left, err)}
	r.Report = left == nil || !errors.Is(err, left) || errors.Is(err, outage.ErrUnavailable)
	if errors.Is(err, idempotency.ErrNearQuota) {
		r.Reason, r.Report = Full, true
	}
	return r
}

// Undecodable returns the answer to the request with key k if its recorded result is not a
// response of the transport, and returns an error for the operator.
func (s Settings) Undecodable(k idempotency.Key, cause error) (Refusal, error) {
	ref := s.Store.Ref(k)
	return Refusal{Reason: Unreadable, Ref: ref, Report: true},
		fmt.Errorf("replay record %s: %w; if an operator has recorded the result, Store.Resolve with OnlyRevision replaces it; Store.Delete forgets the record, and the next duplicate executes the request again, a second time if it was done", ref, cause)
}

// Unreplayable returns the answer to a duplicate whose recorded outcome has no response, and
// nil if it has one.
func Unreplayable(rec *idempotency.Outcome) *Refusal {
	switch {
	case rec.Failed:
		return &Refusal{Reason: Failed}
	case rec.Omitted:
		return &Refusal{Reason: NotKept}
	}
	return nil
}
