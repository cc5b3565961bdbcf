package concurrency

import (
	"context"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/queue"
)

// StepDown asks the present leader to release its term, and returns that leader. Without
// a leader it returns no error, and Elected of its result is false. A successor is never
// asked: if the term ends before the request arrives, the request has no effect, and the
// former leader is returned. The reason may be empty, or up to 1024 bytes of valid UTF-8.
//
// StepDown returns as soon as etcd has stored the request; it does not wait for the term to
// end (Watch shows that). In Lead, the context of the leader's function ends with a
// *StepDownError as its cause, and the term is released when the function has returned. A
// caller of Campaign receives the request through Permit.StopRequested; a leader that never
// checks keeps leading. If the leader's process has not seen yet that it leads, its request is withdrawn:
// Lead campaigns again, and Campaign returns a *LostError that matches ErrEvicted. To end a term without the
// leader's consent, use EvictToken.
//
// It returns ErrInvalid, ErrClosed, ctx's error or one of etcd's. After an error the
// request may have been stored or not; StepDown may safely be called again: the first request that
// the leader receives gives the reason.
func (el *Election) StepDown(ctx context.Context, reason string) (asked Leader, err error) {
	q := el.queue
	if err := engine.CheckReason(reason); err != nil {
		return Leader{}, q.failed("step down in", err)
	}
	err = q.do(ctx, func(ctx context.Context) error {
		v, err := q.Read(ctx)
		if err != nil {
			return err
		}
		if asked = leading(q.describe(queue.State{View: v})); !asked.Elected() {
			return nil
		}
		_, err = owners{q}.found().AskToStop(ctx, v.Holders[0], reason)
		return err
	})
	if err != nil {
		return Leader{}, q.failed("step down in", err)
	}
	return asked, nil
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
// etcd's. After the last two the request may have been stored or not; RequestStop may be called again:
// the first request that arrives gives the reason.
func (s *Semaphore) RequestStop(ctx context.Context, token int64, reason string) error {
	return owners{s.in().queue}.requestStop(ctx, token, reason)
}

// RequestStop asks the request with this token to unlock the mutex, or to wait no longer, as
// Semaphore.RequestStop does. It returns ErrNotHeld, ErrInvalid, ErrClosed, ctx's error or one of etcd's.
func (m *Mutex) RequestStop(ctx context.Context, token int64, reason string) error {
	return owners{m.queue}.requestStop(ctx, token, reason)
}

// RequestStop asks the leader whose term has this token to resign, or the candidate with this token to
// withdraw, as Semaphore.RequestStop does. It is StepDown for a leader that is known: another one is
// never asked. It returns ErrNotHeld if no live request has this token. Its other errors are those of
// StepDown.
func (el *Election) RequestStop(ctx context.Context, token int64, reason string) error {
	return owners{el.queue}.requestStop(ctx, token, reason)
}
