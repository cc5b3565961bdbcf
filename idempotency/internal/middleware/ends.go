package middleware

import (
	"slices"

	"github.com/etcdkit/etcdkit/idempotency"
)

// End is how an attempt has ended, as far as its response shows. The same ends follow from statuses of
// HTTP and from codes of gRPC, so that a call has one outcome by either way.
type End int

// The ends.
const (
	Success     End = iota
	Final           // a final no: a repetition would get it again
	Early           // refused before the work, as the code says
	Interrupted     // the doing of the client, of a deadline or of another call at the same time
	Failure         // a failure that a repetition may not meet
	Broken          // the response broke off: how far the handler came is not known
)

// Action returns what follows. With idempotency.Refuse, Forget becomes Abandon: no code proves that
// nothing was done.
func (e End) Action() idempotency.Action {
	switch e {
	case Success, Final:
		return idempotency.Remember
	case Broken:
		return idempotency.Abandon
	}
	return idempotency.Forget
}

// EndOfStatus returns the end that a status of HTTP stands for. 409 is Final although a handler may use
// it for a conflict with another call at the same time: it also means that a thing exists already.
func EndOfStatus(status int) End {
	switch {
	case status >= 500:
		return Failure
	case slices.Contains([]int{401, 403, 407, 421, 425, 429}, status):
		return Early
	case slices.Contains([]int{408, 423, 449, 499}, status):
		return Interrupted
	case status >= 400:
		return Final
	}
	return Success
}

// EndOfCode returns the end that a code of gRPC, a number, stands for.
func EndOfCode(code uint32) End {
	switch code {
	case 0: // OK
		return Success
	case 3, 5, 6, 9, 11: // INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, FAILED_PRECONDITION, OUT_OF_RANGE
		return Final
	case 7, 8, 16: // PERMISSION_DENIED, RESOURCE_EXHAUSTED, UNAUTHENTICATED
		return Early
	case 1, 4, 10: // CANCELLED, DEADLINE_EXCEEDED, ABORTED
		return Interrupted
	}
	return Failure
}
