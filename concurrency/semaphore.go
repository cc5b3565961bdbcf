package concurrency

import (
	"context"
	"fmt"
	"iter"
	"math"
	"sync/atomic"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Semaphore lets requests of a total weight of at most its limit hold permits at
// the same time, in all processes whose sessions share its prefix and namespace.
// Who waits is served in the order in which etcd received the requests; a heavy
// request is not overtaken by light ones behind it.
//
// A Semaphore is safe for concurrent use, and needs no closing. All Semaphore
// values of one name on one session share one view of the queue.
type Semaphore struct {
	gate    *gate
	limit   int64
	adopt   bool
	checked atomic.Bool // the stored limit was compared with ours
}

// SemaphoreOptions configure a Semaphore. nil means all defaults.
type SemaphoreOptions struct {
	// AdoptLimit takes the limit that is stored in etcd as it is, instead of
	// failing with a *LimitMismatchError if it differs from this program's.
	// This program's limit then counts only if none is stored. Set it in all
	// programs if operators change the limit with SetLimit. Defaults to false.
	AdoptLimit bool
}

// NewSemaphore returns the semaphore of that name. It does no I/O. The limit is
// stored in etcd by the first call for a permit, if none is stored yet; from then
// on the stored one is in force, and SetLimit changes it for all.
//
// It returns ErrInvalid if the session is nil, the limit is below 0 or above
// math.MaxInt32, or the name is empty, longer than 255 bytes, not valid UTF-8, or
// contains '/' or control characters; and ErrClosed if the session is closed.
func NewSemaphore(s *Session, name string, limit int, opts *SemaphoreOptions) (*Semaphore, error) {
	if s == nil {
		return nil, invalid("semaphore %q: the session is nil", name)
	}
	if limit < 0 || limit > math.MaxInt32 {
		return nil, invalid("semaphore %q: limit %d is not between 0 and %d", name, limit, math.MaxInt32)
	}
	g, err := s.gate(keyspace.Semaphore, name, 0)
	if err != nil {
		return nil, fmt.Errorf("semaphore: %w", err)
	}
	return &Semaphore{gate: g, limit: int64(limit), adopt: opts != nil && opts.AdoptLimit}, nil
}

// Acquire waits until a permit is granted and returns it. The options Weight, ID,
// TakeOver, Note, Wait, MaxWaiters and MaxHold change what is asked for.
//
// ctx bounds the wait, not the permit: the permit's own context keeps ctx's
// values but not its end. When ctx ends, Acquire returns ctx's error at once; the
// request is removed from etcd in the background, and a permit that is granted at
// that very moment is given back.
//
// It returns a *FullError (ErrFull) if Wait or MaxWaiters refuses to wait longer; an
// *UnavailableError (ErrUnavailable) if Wait has passed and etcd does not answer, or,
// joined with ctx's error, if ctx has ended then; a *HeldError if the ID is in use; a *LimitMismatchError if the stored limit is
// not this program's; a *LostError (ErrEvicted, or ErrReleased by ReleaseID) if
// the request was taken out of the queue by others; ErrInvalid for bad options or
// a weight above the limit; ErrClosed; ErrTooMany; or an error of etcd's, for
// example that it is out of space. After an error no request of this call
// counts: nothing is left in etcd, or it is being removed in the background as
// soon as etcd can be reached, at the latest by the end of the lease.
//
// If the session loses its lease while the call waits, the call queues anew, at
// the end. If many calls of the session wait, they do so a few at a time, in the
// order in which they began.
func (s *Semaphore) Acquire(ctx context.Context, opts ...AcquireOption) (*Permit, error) {
	return s.acquire(ctx, false, opts)
}

// TryAcquire returns a permit if one is free now, and a *FullError (ErrFull) if
// not. Others who wait come first, even if this request would fit beside them.
// The options Weight, ID, TakeOver, Note and MaxHold may be given.
//
// A refusal writes nothing to etcd in general, and costs one read whose size does not
// depend on the number of waiters. If many callers come at the same time it may take
// some rounds, and up to about 100 ms, to distinguish a permit that is held from one
// that another try is just releasing. A *FullError is what etcd has just answered,
// unless thousands of calls of the session came before this one and it had no turn
// within TryTimeout: then it has the limit alone.
//
// While etcd does not answer, TryAcquire waits for it until ctx ends, and returns ctx's
// error joined with an *UnavailableError (ErrUnavailable). Without a deadline in ctx it
// waits at most for TryTimeout, and returns an *UnavailableError alone, whose text names
// the endpoints. Other errors, ctx and the state after a failure are those of Acquire.
func (s *Semaphore) TryAcquire(ctx context.Context, opts ...AcquireOption) (*Permit, error) {
	return s.acquire(ctx, true, opts)
}

// Do acquires a permit, runs fn under it and releases it, even if fn panics or
// exits its goroutine. ctx bounds the wait and fn: fn's context is a child of ctx
// and also ends, with a *LostError as its cause, when the permit ends. fn must
// have ended its work when it returns.
//
// It returns the errors of Acquire if it gets no permit; then fn was not run.
// Otherwise it returns fn's error, nil included. If the permit was lost before fn
// returned, a *LostError (ErrLost) is joined to it, even if fn succeeded: the work may
// have overlapped with another holder's.
//
// After fn has returned, Do waits for etcd to confirm the release, at most for
// SessionOptions.ReleaseTimeout and until ctx ends. A release that is not confirmed by
// then is no error of Do: the work was done under a valid permit, and a caller that
// retries on errors must not do it again. The release continues in the background, and
// the permit counts as held until it arrives or the session's lease ends. To wait for
// the confirmation, call p.Release after Do; Trace.Unconfirmed reports that none came.
func (s *Semaphore) Do(ctx context.Context, fn func(ctx context.Context, p *Permit) error, opts ...AcquireOption) error {
	if fn == nil {
		return invalid("semaphore %q: the function is nil", s.gate.name)
	}
	p, err := s.Acquire(ctx, opts...)
	if err != nil {
		return err
	}
	return p.do(ctx, fn)
}

func (s *Semaphore) acquire(ctx context.Context, try bool, opts []AcquireOption) (*Permit, error) {
	r, err := newRequest(try, opts)
	if err != nil {
		return nil, s.gate.failed("acquire", err)
	}
	if r.weight > s.limit && s.limit > 0 && !s.adopt && !s.checked.Load() {
		return nil, s.gate.failed("acquire", s.gate.tooHeavy(r.weight, s.limit))
	}
	r.limit = s.limit
	if !s.checked.Load() || r.weight > 1 {
		r.prepare = func(ctx context.Context) error { return s.prepare(ctx, r.weight) }
	}
	return s.gate.acquire(ctx, r)
}

// prepare checks a request against the limit before anything is written. The
// first call compares the stored limit with this program's.
func (s *Semaphore) prepare(ctx context.Context, weight int64) error {
	return s.gate.open(ctx, func(ctx context.Context) error { return s.fits(ctx, weight) })
}

func (s *Semaphore) fits(ctx context.Context, weight int64) error {
	if !s.checked.Load() {
		if err := s.check(ctx, weight); err != nil {
			return err
		}
		s.checked.Store(true)
	}
	if seen := s.gate.limit.Load(); seen != nil && seen.tooLow(weight) {
		// It may have been raised since this process last saw it.
		stored, known, err := s.gate.readLimit(ctx)
		if err != nil {
			return err
		}
		if known && stored.tooLow(weight) {
			return s.gate.tooHeavy(weight, stored.limit)
		}
	}
	return nil
}

func (s *Semaphore) check(ctx context.Context, weight int64) error {
	stored, known, err := s.gate.readLimit(ctx)
	if err == nil && !known {
		if own := (seenLimit{limit: s.limit}); own.tooLow(weight) {
			return s.gate.tooHeavy(weight, s.limit)
		}
		stored, err = s.gate.storeLimit(ctx, s.limit)
	}
	if err != nil {
		return err
	}
	// A semaphore that was paused is in agreement with everybody: pausing must
	// not keep programs from starting.
	paused := stored.limit == 0 && !stored.initial
	if stored.limit != s.limit && !paused && !s.adopt {
		return &LimitMismatchError{Name: s.gate.name, Stored: int(stored.limit), Wanted: int(s.limit)}
	}
	return nil
}

// SetLimit changes the limit for all, at once: what it admits from then on fits
// the new limit. Raising wakes those who fit. Lowering takes no permit back;
// nobody is admitted until enough are released; a waiting request that is heavier
// than the new limit fails with ErrInvalid. A limit of 0 pauses: waiters stay.
//
// A waiter that was admitted just before the change may return from Acquire just
// after SetLimit has returned. Status and Watch show it as a holder. So "SetLimit(0),
// and then nobody held" is a barrier after which nobody works under a permit.
//
// It changes a limit that is stored, or that of a semaphore which has requests. For
// another name it returns ErrNoLimit, since the name may be misspelled, unless the option
// CreateLimit is given or this session has seen a limit of that name before.
//
// It returns ErrInvalid if n is below 0 or above math.MaxInt32, ErrNoLimit, ErrClosed,
// ctx's error, or one of etcd's; after the last two the limit may be changed or not. Of
// two calls at the same time the later one wins, in etcd's order.
func (s *Semaphore) SetLimit(ctx context.Context, n int, opts ...SetLimitOption) error {
	var c limitChange
	for _, o := range opts {
		o(&c)
	}
	if n < 0 || n > math.MaxInt32 {
		return s.gate.failed("set limit of", invalid("limit %d is not between 0 and %d", n, math.MaxInt32))
	}
	if err := s.gate.open(ctx, func(ctx context.Context) error { return s.gate.setLimit(ctx, int64(n), c.create) }); err != nil {
		return s.gate.failed("set limit of", err)
	}
	s.checked.Store(true) // whoever sets the limit agrees with it
	return nil
}

// SetLimitOption changes one call of SetLimit.
type SetLimitOption func(*limitChange)

// limitChange is what one call of SetLimit asks for.
type limitChange struct{ create bool }

// CreateLimit lets SetLimit store a limit for a name that is not in use yet.
func CreateLimit() SetLimitOption { return func(c *limitChange) { c.create = true } }

// Status reads the present state. It is linearizable: it shows everything that
// had returned before the call. With the option CheckLeases it also shows when each
// holder's session has renewed its lease. It returns ErrClosed, ctx's error or one of
// etcd's.
func (s *Semaphore) Status(ctx context.Context, opts ...StatusOption) (Status, error) {
	return s.gate.status(ctx, opts)
}

// Watch yields the present state and then each change, for as long as the loop
// goes on; changes that follow each other quickly may be yielded as one. The first
// state is linearizable, as that of Status: it shows everything that had returned
// before the loop began. No state is older than the one before, except after a
// restored backup, and none differs from it in its Revision only.
//
// It ends with one error: ctx's when ctx ends, ErrClosed, or at its beginning one of
// etcd's that repeating would not change. Later on, trouble with etcd delays it but
// does not end it. It costs one read, and one watch for all watchers and waiters of
// this name on the session. The iterator may be used more than once.
func (s *Semaphore) Watch(ctx context.Context) iter.Seq2[Status, error] { return s.gate.watch(ctx) }

// Evict takes the request with this ID away from its owner, whether it waits or
// holds, and gives the reason, up to 1024 bytes, to him: his Acquire fails, or his
// permit's context ends, with ErrEvicted. That can be after the permit is free
// and another has it: use it on holders that are stuck or do not matter, and
// Guard or Token where it does.
//
// It returns ErrNotHeld if no live request has this ID, ErrInvalid, ErrClosed,
// ctx's error or one of etcd's; after the last two the request may be gone or
// not. It does not work while etcd is out of space.
func (s *Semaphore) Evict(ctx context.Context, id, reason string) error {
	return s.gate.endID(ctx, id, record.Notice{Cause: record.CauseEvicted, Reason: reason})
}

// EvictToken is Evict for the request with this token, as Status shows it. It
// returns ErrNotHeld if no live request has this token, and the other errors of
// Evict.
func (s *Semaphore) EvictToken(ctx context.Context, token int64, reason string) error {
	return s.gate.endToken(ctx, token, record.Notice{Cause: record.CauseEvicted, Reason: reason})
}

// ReleaseID gives back the permit with this ID on behalf of its owner: the end of
// work that began in another process. The owner's context ends with ErrReleased, and
// its own Release returns nil. A waiting request ends as well. It returns ErrNotHeld if no live request has
// this ID, for instance because it was released before; and the other errors of
// Evict.
func (s *Semaphore) ReleaseID(ctx context.Context, id string) error {
	return s.gate.endID(ctx, id, record.Notice{Cause: record.CauseReleased})
}
