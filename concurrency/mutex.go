package concurrency

import (
	"context"
	"fmt"
	"iter"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Mutex is held by at most one request at a time, in all processes whose sessions share its
// prefix and namespace. Requests are granted in the order in which etcd received them. It is
// the queue of a Semaphore with one permit, whose limit is not stored and cannot be changed;
// a semaphore of the same name is independent of it.
//
// Tokens of its permits strictly rise from holder to holder: see Permit.Token.
//
// A Mutex is safe for concurrent use. It is not reentrant: two calls of one process are two
// requests. A Lock with the context of work under the mutex waits for its own permit: the session's Logger gets a warning, and the
// error that ends the wait has that permit's token.
type Mutex struct{ queue *sessionQueue }

// NewMutex returns the mutex of that name. It does no I/O. It returns ErrInvalid if the
// session is nil or the name is not valid (see NewSemaphore), and ErrClosed if the session is
// closed.
func NewMutex(s *Session, name string) (*Mutex, error) {
	q, err := s.queue(keyspace.Mutex, name, 1)
	if err != nil {
		return nil, fmt.Errorf("new mutex %q: %w", name, err)
	}
	return &Mutex{queue: q}, nil
}

// Lock blocks until the mutex is free or ctx is done, and returns the permit that holds it.
// Release of the permit unlocks the mutex. The options ID, TakeOver, Note, Wait, MaxWaiters
// and MaxHold may be given. ctx, the errors and the state after a failure are those of
// Semaphore.Acquire, without *LimitMismatchError; any Weight but 1 is ErrInvalid.
func (m *Mutex) Lock(ctx context.Context, opts ...AcquireOption) (*Permit, error) {
	return m.lock(ctx, false, opts)
}

// TryLock returns the permit if the mutex is free now, a *FullError (ErrFull) if not, and
// an *UnavailableError (ErrUnavailable) if etcd does not answer within TryTimeout and ctx
// has no deadline. Everything else is as in Semaphore.TryAcquire.
func (m *Mutex) TryLock(ctx context.Context, opts ...AcquireOption) (*Permit, error) {
	return m.lock(ctx, true, opts)
}

func (m *Mutex) lock(ctx context.Context, try bool, opts []AcquireOption) (*Permit, error) {
	r, err := newRequest("lock", try, opts)
	if err == nil && r.Weight != 1 {
		err = invalid("Weight(%d): the limit of a mutex is 1", r.Weight)
	}
	if err != nil {
		err = m.queue.failed(r.doing, err)
	}
	return terms{}.acquire(ctx, m.queue, r, err)
}

// Do locks the mutex, runs fn and unlocks it, as Semaphore.Do does with a permit. If the
// mutex is not granted, it returns the errors of Lock; otherwise fn's error, joined with a
// *LostError if the mutex was lost before fn returned. A release that etcd has not confirmed
// in time is not an error.
func (m *Mutex) Do(ctx context.Context, fn func(ctx context.Context, p *Permit) error, opts ...AcquireOption) error {
	if fn == nil {
		return m.queue.failed("lock", invalid("the function is nil"))
	}
	p, err := m.Lock(ctx, opts...)
	if err != nil {
		return err
	}
	return p.do(ctx, fn)
}

// Status reads the present state, as Semaphore.Status does. It returns ErrClosed,
// ctx's error or one of etcd's.
func (m *Mutex) Status(ctx context.Context, opts ...StatusOption) (Status, error) {
	return m.queue.status(ctx, opts)
}

// Watch yields the present state and then each change, as Semaphore.Watch does. It
// ends with ctx's error, ErrClosed, or at its beginning one of etcd's.
func (m *Mutex) Watch(ctx context.Context) iter.Seq2[Status, error] { return m.queue.watch(ctx) }

// Evict ends the request with this ID, whether it holds the mutex or waits, as
// Semaphore.Evict does. It returns ErrNotHeld and the other errors of Semaphore.Evict.
func (m *Mutex) Evict(ctx context.Context, id, reason string) error {
	return owners{m.queue}.endID(ctx, id, nil, record.Notice{Cause: record.CauseEvicted, Reason: reason})
}

// ReleaseID unlocks on behalf of the request with this ID, as Semaphore.ReleaseID
// does. It returns ErrNotHeld and the other errors of Semaphore.Evict.
func (m *Mutex) ReleaseID(ctx context.Context, id string, opts ...ReleaseOption) error {
	return owners{m.queue}.releaseID(ctx, id, opts)
}

// EvictToken ends the request with this token, whether it holds the mutex or waits, as
// Semaphore.EvictToken does. It returns ErrNotHeld and the other errors of Semaphore.Evict.
func (m *Mutex) EvictToken(ctx context.Context, token int64, reason string) error {
	return owners{m.queue}.endToken(ctx, token, record.Notice{Cause: record.CauseEvicted, Reason: reason})
}

// RequestStop asks the request with this token to unlock the mutex, or to wait no longer, as
// Semaphore.RequestStop does. It returns ErrNotHeld, ErrInvalid, ErrClosed, ctx's error or one of etcd's.
func (m *Mutex) RequestStop(ctx context.Context, token int64, reason string) error {
	return owners{m.queue}.requestStop(ctx, token, reason)
}
