package concurrency

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/etcdkit/etcdkit/internal/door"
	"github.com/etcdkit/etcdkit/internal/entry"
	"github.com/etcdkit/etcdkit/internal/keep"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/queue"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Semaphore grants permits to requests, of a total weight of at most its limit at the same
// time, in all processes whose sessions share its prefix and namespace. Requests are granted
// in the order in which etcd received them; a light request never overtakes a heavy one that
// is before it.
//
// A Semaphore is safe for concurrent use and need not be closed. All Semaphore values of one
// name on one session share one view of the queue.
type Semaphore door.Door[semaphore]

// semaphore is what is behind a Semaphore; it is zero if that is nil. Nothing changes it.
type semaphore struct {
	queue *sessionQueue
	*entry.Agreement
	source source       // if it was made by a Limiter
	keeper *keep.Keeper // nil unless it keeps permits
}

func (s *Semaphore) in() semaphore { return door.In(s) }

func (s semaphore) public() *Semaphore { return (*Semaphore)(door.New(s)) }

// NewSemaphore returns the semaphore of that name. It does no I/O. The first call for a
// permit stores the limit in etcd if none is stored; from then on the stored limit is in
// force, and SetLimit changes it for all processes. Until a call for a permit has found the
// two limits equal, each call compares them, and returns a *LimitMismatchError if they
// differ: a later SetLimit does not disturb this Semaphore, but the next start of a program
// with the former limit. A limit of 0 that SetLimit has stored, which pauses, differs from no other.
//
// It returns ErrInvalid if the session is nil, the limit is below 0 or above math.MaxInt32,
// or the name is empty, longer than 255 bytes, not valid UTF-8, or contains '/' or control
// characters, or Keep or Handover is out of its bounds; and ErrClosed if the session is closed.
func NewSemaphore(s *Session, name string, limit int, opts *SemaphoreOptions) (*Semaphore, error) {
	q, err := s.queue(keyspace.Semaphore, name, 0)
	if err == nil && (limit < 0 || limit > math.MaxInt32) {
		err = invalid("limit %d is not between 0 and %d", limit, math.MaxInt32)
	}
	if opts == nil {
		opts = &SemaphoreOptions{}
	}
	if err == nil {
		err = opts.check()
	}
	if err != nil {
		return nil, fmt.Errorf("new semaphore %q: %w", name, err)
	}
	sem := semaphore{queue: q, Agreement: &entry.Agreement{Session: q.sess, Stored: q.Limit, Name: name, Limit: int64(limit), Adopt: opts.AdoptLimit, Adopted: &q.Adopted}}
	sem.keeper = newKeeper(&sem, opts)
	return sem.public(), nil
}

// newKeeper returns what keeps the permits of a semaphore, or nil if the options ask for nothing.
func newKeeper(s *semaphore, o *SemaphoreOptions) *keep.Keeper {
	q := s.queue
	return keep.New(keep.Options{
		Session: q.sess, Queue: q.Queue, Keep: o.Keep, Handover: o.Handover, Wanted: s.Limit,
		Fetch: func(ctx context.Context, waits func(*queue.Full)) (*keep.Holder, error) {
			r := request{doing: "acquire", Request: queue.Request{Weight: 1}}
			p, err := (&attempt{reporter: reporter{queue: q, entry: s.Begin(), fetches: waits}, request: r, terms: s.terms(), caller: ctx, begun: time.Now()}).onLeases(ctx)
			if err != nil {
				return nil, err
			}
			return &p.kept, nil
		},
		Ended: func() { q.CountPermits(-1) },
	})
}

// Acquire blocks until a permit is granted or ctx is done. The options Weight, ID, TakeOver,
// Note, Wait, MaxWaiters and MaxHold change the request.
//
// ctx bounds the wait, not the permit: the permit's own context keeps ctx's values but not
// its end. When ctx ends, Acquire returns ctx's error at once; the request is removed from
// etcd in the background, and a permit that is granted at that very moment is released.
//
// It returns
//
//   - a *FullError (ErrFull) if Wait or MaxWaiters ends the wait;
//   - an *UnavailableError (ErrUnavailable) if Wait has passed and etcd does not answer;
//     joined with ctx's error if ctx has ended and etcd has not answered for half a second or more;
//   - a *HeldError (ErrHeld) if the ID is in use;
//   - a *LimitMismatchError (ErrLimitMismatch) if the stored limit is not this program's;
//   - a *LostError (ErrEvicted, or ErrReleased by ReleaseID) if another process removed the
//     request from the queue;
//   - ErrInvalid for bad options or a weight above the limit; ErrTooMany; ErrClosed;
//   - ctx's error, or an error of etcd's, such as that it is out of space.
//
// After an error the request does not count: its key is gone, or is being removed in the
// background as soon as etcd can be reached, at the latest by the end of the lease.
//
// If the session loses its lease while the call waits, the call joins the queue again, at
// its end. If many calls of the session wait, they do so a few at a time, in the order in
// which they began.
func (s *Semaphore) Acquire(ctx context.Context, opts ...AcquireOption) (*Permit, error) {
	return s.in().acquire(ctx, false, opts)
}

// TryAcquire returns a permit if one is free now, and a *FullError (ErrFull) otherwise.
// Requests that wait come first, even if this request would fit beside them. The options
// Weight, ID, TakeOver, Note and MaxHold may be given.
//
// A refusal usually writes nothing to etcd. It costs one read, whose size does not depend on
// the number of waiters. If many callers try at the same time, it may take several rounds,
// and up to about 100 ms, to distinguish a permit that is held from one that another try is
// just releasing. The counts of a *FullError are what etcd has just answered; only if
// thousands of calls of the session came before this one, and it had no turn within
// TryTimeout, does the error have the limit alone.
//
// Requests that this session was removing when the call came are no reason to refuse it. If a permit
// is free without them, it waits for up to about 100 ms until they are gone, and reads again.
//
// With the total of a KeyedLimiter a refusal costs a second read, of counts alone if the total is
// above 256, and then one of a few keys if such requests could change the answer. While more than
// 256 requests are in its queue, a try may be refused because of another one that the total
// refuses at the same moment.
//
// While etcd does not answer, TryAcquire waits until ctx ends, and returns ctx's error, joined
// with an *UnavailableError (ErrUnavailable) if etcd has not answered for half a second or more:
// if ctx ends earlier than that, etcd may just be slow. Without a deadline in ctx TryAcquire waits at
// most for TryTimeout, and returns an *UnavailableError alone, whose text names the endpoints. Other
// errors, ctx and the state after a failure are those of Acquire.
func (s *Semaphore) TryAcquire(ctx context.Context, opts ...AcquireOption) (*Permit, error) {
	return s.in().acquire(ctx, true, opts)
}

// Do acquires a permit, runs fn under it and releases it, even if fn panics or exits its
// goroutine. ctx bounds the wait and fn: fn's context is a child of ctx and also ends, with a
// *LostError as its cause, when the permit ends. fn must have ended its work when it returns.
//
// If no permit is granted, Do returns the errors of Acquire, and fn was not run. Otherwise it
// returns fn's error, nil included. If the permit was lost before fn returned, a *LostError
// (ErrLost) is joined to it, even if fn succeeded: the work may have overlapped with another
// holder's.
//
// After fn has returned, Do waits for etcd to confirm the release, at most for
// SessionOptions.ReleaseTimeout and until ctx ends. A release that is not confirmed by then
// is not an error of Do: the work was done under a valid permit, and a caller that retries on
// errors must not repeat it. The release continues in the background, and the permit counts
// as held until etcd confirms it or the session's lease ends. To wait for the confirmation,
// call p.Release after Do; hooks see that it never came (observe.Unconfirmed).
func (s *Semaphore) Do(ctx context.Context, fn func(ctx context.Context, p *Permit) error, opts ...AcquireOption) error {
	if fn == nil {
		return s.in().queue.failed("acquire", invalid("the function is nil"))
	}
	p, err := s.Acquire(ctx, opts...)
	if err != nil {
		return err
	}
	return p.do(ctx, fn)
}

// request returns what a call asks for, or ErrInvalid if it is refused without a request to etcd.
func (s semaphore) request(ctx context.Context, try bool, opts []AcquireOption) (request, error) {
	if s.queue == nil {
		return request{}, fmt.Errorf("acquire: %w", invalid("the semaphore is nil (Limiter.Key)"))
	}
	r, err := newRequest("acquire", try, opts)
	switch {
	case err != nil:
	case s.queue.isTotal():
		err = invalid("a permit of the total has a key: use KeyedLimiter.Key")
	case s.queue.invalid != nil:
		err = s.queue.invalid
	case s.queue.base == nil && r.Weight > s.Limit && s.Limit > 0 && !s.Adopt && !s.Settled():
		err = tooHeavy(Level(s.Level), r.Weight, s.Limit)
	case s.Total != nil && r.Weight > s.Total.Limit && !s.Adopt && !s.Total.Settled():
		err = tooHeavy(LevelTotal, r.Weight, s.Total.Limit)
	default:
		err = nested(ctx, s.source)
	}
	if err != nil {
		return r, s.queue.failed(r.doing, err)
	}
	return r, nil
}

// acquire is every call for a permit. That of a permit that was kept needs nothing else.
func (s semaphore) acquire(ctx context.Context, try bool, opts []AcquireOption) (*Permit, error) {
	if len(opts) == 0 && s.keeper != nil && s.source == nil && !s.queue.sess.Hooks().On() {
		if p := takeKept(ctx, s.keeper, s.queue, 0, nil); p != nil {
			return p, nil
		}
	}
	r, err := s.request(ctx, try, opts)
	if s.queue == nil {
		return nil, err
	}
	return s.terms().acquire(ctx, s.queue, r, err)
}

// terms are those of all its calls.
func (s semaphore) terms() terms {
	return terms{agreement: s.Agreement, limit: s.Limit, source: s.source, keeper: s.keeper}
}

// SetLimit changes the limit for all processes, at once: every later admission fits the new
// limit. A raised limit admits the waiters that fit. A lowered limit ends no permit: no
// request is admitted until enough permits are released, and a waiting request that is
// heavier than the new limit fails with ErrInvalid. A limit of 0 pauses the semaphore: all
// waiters stay in the queue, whatever their weight.
//
// A waiter that was admitted just before the change may return from Acquire just after
// SetLimit has returned. Status and Watch show it as a holder. So "SetLimit(0), then wait
// until Status shows no holder" is a barrier after which no work is done under a permit. That holds
// for the key of a KeyedLimiter with a total as well: while the key is paused, its requests that have
// waited for the total return to the end of the key's queue when their turn comes. Between the two such a
// request is in no queue, and its ID is free: if another call takes the ID then, Acquire returns a
// *HeldError. The barrier costs each permit that has waited for a total one read.
//
// SetLimit changes a limit that is stored, or that of a semaphore which has requests. For
// another name it returns ErrNoLimit, since the name may be misspelled, unless the option
// CreateLimit is given or this session has seen a limit of that name before.
//
// It returns ErrInvalid if n is below 0 or above math.MaxInt32, ErrNoLimit, ErrClosed, ctx's
// error, or one of etcd's; after the last three the limit may be changed or not. Of two
// concurrent calls the later one wins, in etcd's order.
func (s *Semaphore) SetLimit(ctx context.Context, n int, opts ...SetLimitOption) error {
	q := s.in().queue
	c, err := newLimitChange(n, opts)
	if err != nil {
		return q.failed("set limit of", err)
	}
	if err := q.do(ctx, func(ctx context.Context) error { return q.Set(ctx, limit.To(int64(n)), c.create) }); err != nil {
		if errors.Is(err, ErrNoLimit) {
			err = fmt.Errorf("%w, and no request exists: if the name is right, pass CreateLimit", err)
		}
		return q.failed("set limit of", err)
	}
	if q.base == nil {
		s.in().Settle() // this program agrees with the limit that it sets
	}
	s.in().keeper.Doubt()
	return nil
}

// Status reads the present state. It is linearizable: it shows everything that had returned
// before the call. With the option CheckLeases it also shows when each holder's session last
// renewed its lease. It returns ErrClosed, ctx's error or one of etcd's.
func (s *Semaphore) Status(ctx context.Context, opts ...StatusOption) (Status, error) {
	return s.in().queue.status(ctx, opts)
}

// Watch yields the present state and then each change, until the loop ends; changes in quick
// succession may be yielded as one. The first state is linearizable, as that of Status. No
// state is older than the one before it, except after a restored backup, and no two states in
// succession differ in their Revision alone.
//
// It ends with one error: ctx's when ctx ends, ErrClosed, or at its beginning one of etcd's
// that a repetition would not change. Later failures of etcd delay it but do not end it. All
// watchers and waiters of one name on a session share one watch; each Watch costs one read in
// addition. The iterator may be used more than once.
//
// For the key of a KeyedLimiter, each change costs one read, at most one in 20 ms: the state shows
// the queue and the limiter's default as of one revision. With a total it shows both levels, as Status
// does, and the session follows the queue of the total, with the requests of all keys. Watch a few
// keys at a time.
func (s *Semaphore) Watch(ctx context.Context) iter.Seq2[Status, error] {
	return s.in().queue.watch(ctx)
}

// Evict ends the request with this ID, whether it waits or holds, without its owner's
// consent. The owner's Acquire fails, or its permit's context ends, with ErrEvicted and the
// reason, which has up to 1024 bytes. That can happen after another request has been granted
// the permit: evict holders that are stuck or whose overlap does no harm, and use Guard or
// Token where it does.
//
// It returns ErrNotHeld if no live request has this ID, ErrInvalid, ErrClosed, ctx's error or
// one of etcd's; after the last three the request may be gone or not. It does not work while
// etcd is out of space.
func (s *Semaphore) Evict(ctx context.Context, id, reason string) error {
	return owners{s.in().queue}.endID(ctx, id, nil, record.Notice{Cause: record.CauseEvicted, Reason: reason})
}

// EvictToken is Evict for the request with this token, as Status shows it. It returns
// ErrNotHeld if no live request has this token, and the other errors of Evict.
func (s *Semaphore) EvictToken(ctx context.Context, token int64, reason string) error {
	err := owners{s.in().queue}.endToken(ctx, token, record.Notice{Cause: record.CauseEvicted, Reason: reason})
	s.in().keeper.Doubt()
	return err
}

// ReleaseID releases the permit with this ID on behalf of its owner: the end of work that
// began in another process. The owner's context ends with ErrReleased when its process
// receives the notice, possibly after another request was granted the permit; its own Release
// returns nil. A request that waits ends as well. ReleaseID returns ErrNotHeld if no live
// request has this ID, for example because it was released before; and the other errors of
// Evict. A later request may have the same ID by then: pass OnlyToken.
func (s *Semaphore) ReleaseID(ctx context.Context, id string, opts ...ReleaseOption) error {
	return owners{s.in().queue}.releaseID(ctx, id, opts)
}

// RequestStop asks the request with this token, as Status shows it, to end, and leaves it to its process
// to do so. A holder is asked to finish its work and release its permit: the context of its
// Permit.StopRequested ends, with a *StepDownError as its cause. Nothing else changes: the permit stays
// valid until its holder releases it, and a holder that never checks keeps it. A holder with
// SemaphoreOptions.Keep or Handover releases the permit too, instead of passing it on. A request that
// waits is withdrawn, and its call returns a *LostError that matches ErrEvicted; one that is admitted
// meanwhile is asked as a holder. So RequestStop never takes a permit from a holder. No other request is
// asked: if this one ends before the request arrives, there is no effect. The reason may be empty, or up
// to 1024 bytes of valid UTF-8.
//
// RequestStop returns as soon as etcd has stored the request; Watch shows when the permit has been
// released. To end a permit without its holder's consent, use EvictToken.
//
// It returns ErrNotHeld if no live request has this token; ErrInvalid, ErrClosed, ctx's error or one of
// etcd's. After the last three the request may have been stored or not; RequestStop may be called again:
// the first request that arrives gives the reason.
func (s *Semaphore) RequestStop(ctx context.Context, token int64, reason string) error {
	return owners{s.in().queue}.requestStop(ctx, token, reason)
}
