package engine

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/etcdkit/etcdkit/internal/join"
)

// The errors that package concurrency returns as its own: they are the same values there,
// which documents them.
var (
	ErrInvalid = errors.New("invalid argument")
	ErrLost    = errors.New("permit is lost")
	ErrClosed  = errors.New("session or its etcd client is closed")
	ErrTooMany = errors.New("too many requests on one session")
)

// Invalid returns an error that is ErrInvalid and has the formatted text.
func Invalid(format string, args ...any) error {
	return join.Kind(ErrInvalid, fmt.Errorf(format, args...))
}

// Apply applies the options of a call to what they change. It returns ErrInvalid for one that is nil.
func Apply[T any, O ~func(*T)](opts []O, to *T) error {
	for i, o := range opts {
		if o == nil {
			return Invalid("Option %d is nil", i+1)
		}
		o(to)
	}
	return nil
}

// maxReason bounds the reason that an operator gives, in bytes.
const maxReason = 1024

// CheckReason returns an ErrInvalid if an operator's reason is out of range.
func CheckReason(reason string) error {
	switch {
	case len(reason) > maxReason:
		return Invalid("the reason has %d bytes, more than %d", len(reason), maxReason)
	case !utf8.ValidString(reason):
		return Invalid("the reason %.20q is not valid UTF-8", reason)
	}
	return nil
}

// ErrEpoch ends what waits on a lost lease: it queues anew on the next one.
var ErrEpoch = errors.New("the session's lease is lost")

var (
	errPresence = errors.New("the lease's presence key was deleted or overwritten: the lease expired or was revoked, or another client changed the key")

	// errBlind ends an epoch that is renewed, and does not learn of evictions.
	errBlind = errors.New("the session's own keys, by which it learns of evictions, could not be read for one and a half TTLs")

	// errRewound ends an epoch when etcd was restored from a backup: which of its permits
	// are still in etcd is not known, and the revisions that were seen may be used again.
	errRewound = errors.New("etcd's history was taken back: a backup was restored")
)

// closing returns the error of a call that has failed after Close had begun. own is the error of its own ctx, or nil.
func closing(own, err error) error {
	switch {
	case own == nil:
		return ErrClosed
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return EndedBy(own, err)
	}
	return err
}

// EndedBy returns the error of a call whose ctx has ended with own, which it matches: the call may have failed with another
// end, that of the session or its lease, at the same moment.
func EndedBy(own, err error) error {
	if errors.Is(err, own) {
		return err
	}
	return own
}
