package concurrency

import "github.com/etcdkit/etcdkit/internal/share"

// Share is the part of a limit that this process may use while it cannot reach etcd, under the
// outage policy Share of limithttp and limitgrpc.
type Share struct {
	Limit    int // as last read from etcd; 0 if it is not known
	Sessions int // that share the limit, as last counted; 0 if that is not known
	Size     int // Limit divided by Sessions, rounded down; 0 if Sessions is 0
	// Running is the weight of the requests of this process that run under its share and have no
	// permit yet.
	Running int
	// Permits is the weight of the permits that this process was granted and has not released, lost
	// ones included. In an outage they use the share as well.
	Permits int
}

// Share returns this process's share of the limit, as last known; it does no I/O. That of a
// KeyedLimiter is the share of its Total. ok is false if no middleware of this session has the
// outage policy Share for this limit.
//
// Only requests of such a middleware run under the share. Another call for a permit, such as Acquire
// of the same limiter, does not run without a permit, and after an outage it does not wait until
// the work under the share has permits: what runs in all processes is then bounded by twice the limit
// for this outage, as during it; each later cut of other processes can add the limit once more. Its
// permits count in Permits.
func (s *Semaphore) Share() (_ Share, ok bool) {
	shared := s.in().queue.sharing.share.Load()
	if shared == nil {
		return Share{}, false
	}
	f := shared.Facts()
	return Share{int(f.Limit), int(f.Sessions), int(f.Size()), int(f.Running), int(f.Permits)}, true
}

// Shared returns this process's share of the limit, for the middlewares, or why it has none.
func (s semaphore) Shared() (*share.Share, error) {
	q := s.queue
	switch {
	case q == nil, q.base != nil && q.invalid == nil: // the second is the semaphore of one key, in Single
		return nil, invalid("the outage policy Share needs a limit of all keys together: a KeyedLimiter with a total, or Single of a NewSemaphore")
	case q.invalid != nil:
		return nil, invalid("the outage policy Share divides the total of limiter %q, and %w", q.name, q.invalid)
	}
	return q.sharing.of(q), nil
}
