package concurrency

import (
	"context"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/record"
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
		if asked = leading(q.describe(v)); !asked.Elected() {
			return nil
		}
		_, err = owners{q}.askToStop(ctx, v.Holders[0], reason)
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
	return owners{s.queue}.requestStop(ctx, token, reason)
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

// requestStop is RequestStop of every kind of queue.
func (s owners) requestStop(ctx context.Context, token int64, reason string) error {
	q, err := s.queue, engine.CheckReason(reason)
	if err == nil {
		err = q.do(ctx, func(ctx context.Context) error {
			r, live, err := s.holderWith(ctx, token)
			if err == nil && !live {
				var waiter owner
				waiter, live, err = s.withToken(ctx, token)
				r = waiter.Request
			}
			if err == nil && live {
				live, err = s.askToStop(ctx, r, reason)
			}
			if err == nil && !live {
				err = ErrNotHeld
			}
			return err
		})
	}
	if err != nil {
		return q.failed(fmt.Sprintf("request a stop of token %d in", token), err)
	}
	return nil
}

// holderWith finds the request that holds a permit with a token. A permit of the key of a limiter with a
// total is held in the total, and its session knows it by the request at the key.
func (s owners) holderWith(ctx context.Context, token int64) (r mirror.Request, holds bool, err error) {
	in := s.queue.last()
	v, err := in.Read(ctx)
	if err != nil {
		return mirror.Request{}, false, err
	}
	at := slices.IndexFunc(v.Holders, func(r mirror.Request) bool { return r.Create == token })
	if at < 0 {
		return mirror.Request{}, false, nil
	}
	if in.limiter == nil {
		return v.Holders[at], true, nil
	}
	o, found, err := owners{in}.atKey(ctx, v.Holders[at])
	return o.Request, found && (in == s.queue || o.queue == s.queue), err
}

// askToStop stores that a request is asked to end, and reports whether it was live then.
func (s owners) askToStop(ctx context.Context, r mirror.Request, reason string) (bool, error) {
	q := s.queue
	n := record.Notice{Cause: record.CauseStepDown, Reason: reason, By: q.sess.Owner(), Key: r.Key}
	key := q.sess.Space().Session(r.Slot.Lease).StepDown(r.Create)
	put := clientv3.OpPut(key, n.Encode(), clientv3.WithLease(clientv3.LeaseID(r.Slot.Lease)))
	return commit.PutBeside(ctx, q.sess.KV(), r.Key, r.Create, put)
}

// StopRequested returns a context that ends when the holder should finish its work and
// release the permit: with a *StepDownError as its cause after RequestStop or Election.StepDown,
// with ErrClosed when Close of the session begins to wait, and when the permit ends, as Context
// does; the first of these counts. The permit itself stays valid until it is released or lost.
func (p *Permit) StopRequested() context.Context {
	asked, ask := p.stopping()
	p.closing.Do(func() {
		accept := p.epoch.Accepting()
		stop := context.AfterFunc(accept, func() { ask(context.Cause(accept)) })
		context.AfterFunc(p.Context(), func() { stop() })
	})
	return asked
}

// stopping returns the context of StopRequested.
func (p *Permit) stopping() (context.Context, context.CancelCauseFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked == nil {
		p.asked, p.ask = context.WithCancelCause(p.Context())
	}
	return p.asked, p.ask
}

// askToStepDown ends the context of StopRequested.
func (p *Permit) askToStepDown(n record.Notice) {
	_, ask := p.stopping()
	ask(&StepDownError{Name: p.queue.name, Token: p.token, Reason: noticeReason(n)})
}
