package commit

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// class sorts the errors of a write by what they say about the write.
type class int

const (
	// unanswered: the write may have been applied, or may still be applied.
	unanswered class = iota
	// answered: the write may have been applied, but this copy of it is no longer under way.
	answered
	// refused: not applied, and etcd would refuse it again.
	refused
	// busy: not applied; another try may succeed.
	busy
	// orphaned: not applied, because the lease is gone.
	orphaned
)

// classify is a whitelist of the errors that say "not applied", because etcd returns them
// before it proposes or applies anything. Every other write may have been applied: etcd
// answers "request timed out", "leader changed" and "server stopped" while the proposal is
// still under way, and "no space" even after it was applied. "No leader" is safe only because
// every call here carries the require-leader metadata, with which etcd checks for a leader
// before it proposes. An answer that a server gives to every copy of a request, such as that
// it does not know the method, must not be unanswered: it would be asked for until ctx ends.
func classify(err error) class {
	switch err.(type) { //nolint:errorlint // nothing wraps them
	case sharedError, unsentError:
		return busy
	}
	known, ok := asEtcd(err)
	switch {
	case !ok && TooLarge(err) && strings.Contains(err.Error(), "trying to send"):
		return refused
	case !ok && TooLarge(err):
		return answered // the request was too large for the server, or its response for the client
	case !ok && status.Code(err) == codes.Unimplemented:
		return refused // no handler has seen it: gRPC's answer for a method without one, or a gateway's without a route
	case !ok && status.Code(err) == codes.InvalidArgument:
		return answered // not in etcd's words: a proxy may have said so after passing it on
	case !ok:
		return unanswered
	}
	switch known {
	case rpctypes.ErrNoSpace, rpctypes.ErrCorrupt:
		return answered
	case rpctypes.ErrTooManyRequests, rpctypes.ErrNoLeader, rpctypes.ErrAuthOldRevision:
		return busy
	case rpctypes.ErrLeaseNotFound:
		return orphaned
	}
	switch known.Code() {
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated, codes.NotFound:
		return refused
	}
	return unanswered
}

func asEtcd(err error) (known rpctypes.EtcdError, ok bool) {
	return known, errors.As(rpctypes.Error(err), &known)
}

// TooLarge reports whether a message was larger than etcd or this client accepts: no
// repetition helps. gRPC's own bounds share a code with other errors, so their text decides.
func TooLarge(err error) bool {
	if err == nil {
		return false
	}
	if known, ok := asEtcd(err); ok {
		return known == rpctypes.ErrRequestTooLarge
	}
	return status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "message larger than max")
}

// Denied reports whether etcd refuses the client: its permissions, its password, or that it has given no user.
// It says nothing of what was asked for, and etcd allows the same again once an operator has acted; or, if
// authentication was enabled a moment ago, after the next login, which clientv3 makes for each stream. An
// expired token is no such case: clientv3 gets a new one.
func Denied(err error) bool {
	if err == nil {
		return false
	}
	known, ok := asEtcd(err)
	return ok && (known.Code() == codes.PermissionDenied || NoLogin(known))
}

// Mendable reports whether etcd refuses what it accepts once an operator has acted: it is out of space (alarm NOSPACE), the data
// of its members differ (alarm CORRUPT), or it refuses the client or its login.
func Mendable(err error) bool {
	known, ok := asEtcd(err)
	return ok && (known == rpctypes.ErrNoSpace || known == rpctypes.ErrCorrupt || Denied(known) || NeedsLogin(known))
}

// NoLogin reports whether etcd refuses the client's login, or asks for one that the client cannot make.
func NoLogin(err error) bool {
	known, ok := asEtcd(err)
	return ok && (known == rpctypes.ErrAuthFailed || known == rpctypes.ErrUserEmpty)
}

// NeedsLogin reports whether etcd does not accept the client's token, or misses one: a client that has
// credentials has to log in again.
func NeedsLogin(err error) bool {
	known, ok := asEtcd(err)
	return ok && (known.Code() == codes.Unauthenticated || known == rpctypes.ErrAuthOldRevision || known == rpctypes.ErrUserEmpty)
}

// Away reports whether etcd was not reached, or not in time: neither a refusal nor a result.
func Away(err error) bool {
	switch {
	case err == nil, Denied(err):
		return false
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return true
	}
	if known, ok := asEtcd(err); ok {
		return known.Code() == codes.Unavailable
	}
	return status.Code(err) == codes.Unavailable
}

// ErrNotEtcd: the server has answered as etcd never does. No repetition helps.
var ErrNotEtcd = fmt.Errorf("the server is no etcd, and only speaks its API: %w", errors.ErrUnsupported)

// Transient reports whether a call that changed nothing and failed with err is worth
// repeating. The caller must check its own ctx.
func Transient(err error) bool {
	if errors.Is(err, ErrNotEtcd) {
		return false
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return true
	}
	if known, ok := asEtcd(err); ok {
		return known.Code() == codes.Unavailable || classify(err) == busy || known == rpctypes.ErrInvalidAuthToken
	}
	if TooLarge(err) {
		return false
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.ResourceExhausted, codes.Internal, codes.Unknown:
		return true
	}
	return false
}
