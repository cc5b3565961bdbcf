package concurrency

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/queue"
	"github.com/etcdkit/etcdkit/internal/record"
)

// AcquireOption changes one call that asks for a permit. If two options of a call set the
// same thing, the last one counts.
type AcquireOption func(*request)

// request is what one call asks for. Nothing changes it once newRequest has checked it: the state of
// the call is in its attempt.
type request struct {
	queue.Request        // of which MaxHold is that of the permit
	doing         string // for errors: what was attempted
	hasID         bool
	wait          time.Duration
	hasWait       bool
	hasMaxHold    bool
	try           bool
}

// TryTimeout bounds TryAcquire and TryLock if their ctx has no deadline, and calls with
// Wait(0): if etcd does not answer within it, they return ErrUnavailable. It is long enough for one request to a silent
// member, which the session abandons after 5 s, and one more to the next member.
const TryTimeout = 6 * time.Second

// errTried is the cause of the end of a ctx by TryTimeout.
var errTried = errors.New("tried long enough")

// bound derives the ctx of a call from the caller's.
func (r *request) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	_, has := ctx.Deadline()
	switch {
	case r.hasWait && r.wait > 0:
		return context.WithTimeoutCause(ctx, r.wait, queue.ErrWaited)
	case r.try && (r.hasWait || !has): // no deadline of ctx takes the place of Wait(0)
		return context.WithTimeoutCause(ctx, TryTimeout, errTried)
	}
	return ctx, func() {}
}

// Weight requests n permits at once instead of one, in one place of the queue; they are
// granted all together. n is at least 1 and at most the limit.
func Weight(n int) AcquireOption { return func(r *request) { r.Weight = int64(n) } }

// ID names the request. At most one live request of the semaphore has this ID, in all
// processes: a second call returns a *HeldError that names the owner. A permit with an ID can
// be released from another process, see ReleaseID. An ID is any non-empty text of up to 255
// bytes.
func ID(id string) AcquireOption { return func(r *request) { r.ID, r.hasID = id, true } }

// TakeOver, together with ID, evicts the live request with this ID, whether it waits or
// holds, and then joins the queue at its end. The former owner is evicted even if this call
// then gives up, for example because Wait has passed. The former owner's context ends, but
// possibly only after another request has been granted the permit: see Semaphore.Evict.
func TakeOver() AcquireOption { return func(r *request) { r.TakeOver = true } }

// Note attaches a text for operators. It is stored in etcd as it is, so it must not contain secrets. What exceeds 1024 bytes is
// cut off, and what is not UTF-8 is replaced: a note refuses no work.
func Note(text string) AcquireOption { return func(r *request) { r.Note = record.Text(text) } }

// Wait bounds the wait to d: after it the call returns a *FullError (ErrFull) if no permit
// was free, or an *UnavailableError (ErrUnavailable) if etcd does not answer, or did not
// answer in all of d. Neither matches context.DeadlineExceeded. If ctx ends before d has
// passed, the call returns ctx's error, joined with an *UnavailableError as described at Acquire.
// Without Wait the call waits until ctx is done.
//
// Wait(0) makes the call a TryAcquire that ends after TryTimeout at the latest, with
// ErrUnavailable alone if etcd does not answer. A later deadline of ctx does not extend that; if
// ctx ends earlier, the call ends with it. To know at its end whether etcd answers, a wait of
// more than a second may cost one read, a second before its end.
func Wait(d time.Duration) AcquireOption { return func(r *request) { r.wait, r.hasWait = d, true } }

// MaxWaiters refuses to join a long queue: if the request is not granted at once and n or
// more requests wait before it, the call returns a *FullError. Of a KeyedLimiter it counts those
// that wait at the same key; see KeyedLimiterOptions.MaxTotalWaiters for the others. Requests of all processes count.
// Those of a process that has died wait until its lease ends, and get permits meanwhile: with n below the limit they do
// not use up all of it. MaxWaiters(0) never joins the
// queue; unlike TryAcquire it waits for an answer of etcd until ctx is done. MaxWaiters costs
// one more read of etcd per call. While other requests come at the same time, it costs up to four reads and
// writes more if the call has a Weight or an ID, and about one without, at each level of a KeyedLimiter; a refusal
// then takes up to about 100 ms. MaxWaiters(0) with Wait, and MaxWaiters in a call that does not wait, are
// ErrInvalid.
func MaxWaiters(n int) AcquireOption {
	return func(r *request) { r.MaxWaiters, r.Bounded = min(n, math.MaxInt32), true } // no queue is as long
}

// MaxHold ends the permit d after its grant: its context ends with ErrTooLong, and the permit
// is released at once, even if the holder is stuck: the next holder can overlap with work that takes time to
// stop. Where that does harm, give the work a ctx of its own that ends earlier, by as long as it takes to
// stop. d is at least a millisecond.
func MaxHold(d time.Duration) AcquireOption {
	return func(r *request) { r.MaxHold, r.hasMaxHold = d, true }
}

// newRequest applies and checks options. try says that the call never waits, which Wait(0)
// says as well.
func newRequest(doing string, try bool, opts []AcquireOption) (request, error) {
	r := request{doing: doing, Request: queue.Request{Weight: 1}}
	if err := engine.Apply(opts, &r); err != nil {
		return r, err
	}
	try = try || r.hasWait && r.wait == 0
	switch {
	case r.Weight < 1 || r.Weight > math.MaxInt32:
		return r, invalid("Weight(%d) is not between 1 and %d", r.Weight, math.MaxInt32)
	case r.hasWait && r.wait < 0:
		return r, invalid("Wait(%v) is negative", r.wait)
	case r.hasMaxHold && r.MaxHold < time.Millisecond:
		return r, invalid("MaxHold(%v) is below a millisecond", r.MaxHold)
	case r.TakeOver && !r.hasID:
		return r, invalid("TakeOver without ID: it names the request to evict")
	case try && r.hasWait && r.wait > 0:
		return r, invalid("Wait(%v) in a call that does not wait", r.wait)
	case r.Bounded && r.MaxWaiters == 0 && r.hasWait:
		return r, invalid("Wait(%v) with MaxWaiters(0), which does not wait", r.wait)
	case r.MaxWaiters < 0:
		return r, invalid("MaxWaiters(%d) is negative", r.MaxWaiters)
	case try && r.Bounded:
		return r, invalid("MaxWaiters(%d) in a call that does not wait", r.MaxWaiters)
	}
	if r.hasID {
		if err := keyspace.CheckID(r.ID); err != nil {
			return r, invalid("the ID %w", err)
		}
	}
	if try {
		r.try, r.Bounded = true, true // with no request before it
	}
	return r, nil
}

// isPlain reports whether a request may be granted any permit that is kept (W19 in
// internal/proof/tested-failures.md).
func (r *request) isPlain() bool { return r.Weight == 1 && !r.hasID && r.Note == "" }
