package concurrency

import (
	"context"
	"math"
	"time"
	"unicode/utf8"

	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// AcquireOption changes one call that asks for a permit. Of options that set the
// same thing, the last one counts.
type AcquireOption func(*request)

// maxNote bounds a note, in bytes.
const maxNote = 1024

// request is what one call asks for.
type request struct {
	weight     int64
	id         string
	hasID      bool
	note       string
	wait       time.Duration
	hasWait    bool
	maxHold    time.Duration
	hasMaxHold bool
	try        bool
	bounded    bool
	maxWaiters int // if bounded
	takeOver   bool

	limit   int64                       // this program's, to be stored if there is none
	prepare func(context.Context) error // checks the request against the stored limit
}

// TryTimeout bounds TryAcquire and TryLock if their ctx has no deadline: if etcd does not
// answer, they fail with ErrUnavailable after it. It leaves time for a request to a member
// that is silent, which is given up after 5 s, and for another one to the next member.
const TryTimeout = 6 * time.Second

// bound derives the ctx of a call from the caller's.
func (r *request) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	_, has := ctx.Deadline()
	switch {
	case r.hasWait:
		return context.WithTimeoutCause(ctx, r.wait, errWaited)
	case r.try && !has:
		return context.WithTimeoutCause(ctx, TryTimeout, errTried)
	}
	return ctx, func() {}
}

// Weight asks for n permits at once instead of one: all or none, in one place of
// the queue. n is at least 1 and at most the limit.
func Weight(n int) AcquireOption { return func(r *request) { r.weight = int64(n) } }

// ID names the request, so that at most one live request of the semaphore has
// this ID in the whole fleet: a second call gets a *HeldError that names the
// owner. A permit with an ID can be released by it from another process, see
// ReleaseID. An ID is any non-empty text of up to 255 bytes.
func ID(id string) AcquireOption { return func(r *request) { r.id, r.hasID = id, true } }

// TakeOver, together with ID, evicts the live request with this ID, waiting or
// holding, and then queues at the end, behind all other requests. The former owner is
// evicted even if this call then gives up, for example because Wait has passed. The
// former owner's context ends, but maybe only after the permit is free: see
// Semaphore.Evict.
func TakeOver() AcquireOption { return func(r *request) { r.takeOver = true } }

// Note attaches a text for operators, up to 1024 bytes of valid UTF-8. It is
// stored in etcd: no secrets.
func Note(text string) AcquireOption { return func(r *request) { r.note = text } }

// Wait bounds the wait: after d the call gives up with a *FullError (ErrFull) if the
// queue was full, or with an *UnavailableError (ErrUnavailable) if etcd does not answer,
// or did not in all of d. Neither matches context.DeadlineExceeded. Wait adds to the bound
// that ctx sets, whose end is reported as ctx's error. To know at its end whether etcd
// answers, a wait of more than a second may cost one read, a second before its end.
func Wait(d time.Duration) AcquireOption { return func(r *request) { r.wait, r.hasWait = d, true } }

// MaxWaiters refuses to join a long queue: if the request is not granted at once and
// n or more wait before it, the call gives up with a *FullError. With 0 it waits
// only where others are about to go, as TryAcquire does. It takes one more read of
// etcd per call.
func MaxWaiters(n int) AcquireOption {
	return func(r *request) { r.maxWaiters, r.bounded = n, true }
}

// MaxHold ends the permit after d: its context ends with ErrTooLong, and the
// permit is given back at once, even if the holder is stuck. It is the in-flight
// limit of a request, at least a millisecond; choose it so that work that looks at
// its context has stopped long before.
func MaxHold(d time.Duration) AcquireOption {
	return func(r *request) { r.maxHold, r.hasMaxHold = d, true }
}

// newRequest applies and checks options. try says that the call never waits.
func newRequest(try bool, opts []AcquireOption) (request, error) {
	r := request{weight: 1}
	for i, o := range opts {
		if o == nil {
			return r, invalid("option %d is nil", i)
		}
		o(&r)
	}
	switch {
	case r.weight < 1 || r.weight > math.MaxInt32:
		return r, invalid("Weight(%d) is not between 1 and %d", r.weight, math.MaxInt32)
	case r.hasWait && r.wait <= 0:
		return r, invalid("Wait(%v) is not above 0; use TryAcquire to not wait", r.wait)
	case r.hasMaxHold && r.maxHold < time.Millisecond:
		return r, invalid("MaxHold(%v) is below a millisecond", r.maxHold)
	case len(r.note) > maxNote:
		return r, invalid("Note has %d bytes, more than %d", len(r.note), maxNote)
	case !utf8.ValidString(r.note):
		return r, invalid("Note %.20q is not valid UTF-8", r.note)
	case r.takeOver && !r.hasID:
		return r, invalid("TakeOver needs an ID")
	case try && r.hasWait:
		return r, invalid("Wait(%v) contradicts a try", r.wait)
	case r.bounded && r.maxWaiters == 0 && r.hasWait:
		return r, invalid("Wait(%v) contradicts MaxWaiters(0)", r.wait)
	case r.maxWaiters < 0:
		return r, invalid("MaxWaiters(%d) is negative", r.maxWaiters)
	case try && r.bounded:
		return r, invalid("MaxWaiters(%d) contradicts a try", r.maxWaiters)
	}
	if r.hasID {
		if err := keyspace.CheckID(r.id); err != nil {
			return r, invalid("ID: %w", err)
		}
	}
	if try {
		r.try, r.bounded = true, true // with no request before it
	}
	return r, nil
}
