package engine

import "errors"

// The errors that package concurrency returns as its own: they are the same values there,
// which documents them.
var (
	ErrLost    = errors.New("permit is lost")
	ErrClosed  = errors.New("session is closed")
	ErrTooMany = errors.New("too many requests on one session")
)

// ErrEpoch ends what waits on a lost lease: it queues anew on the next one.
var ErrEpoch = errors.New("the session's lease is lost")

var (
	errPresence = errors.New("the lease's presence key was deleted or overwritten: the lease expired or was revoked, or another client changed the key")

	// errRewound ends an epoch when etcd was restored from a backup: which of its permits
	// are still in etcd is not known, and the revisions that were seen may be used again.
	errRewound = errors.New("etcd's history was taken back: a backup was restored")
)
