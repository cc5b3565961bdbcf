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
// checks keeps leading. To end a term without the leader's consent, use EvictToken.
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
		v, err := q.read(ctx)
		if err != nil {
			return err
		}
		if asked = leading(q.describe(v)); !asked.Elected() {
			return nil
		}
		_, err = q.askToStop(ctx, v.Holders[0], reason)
		return err
	})
	if err != nil {
		return Leader{}, q.failed("step down in", err)
	}
	return asked, nil
}

// RequestStop asks the holder with this token, as Status shows it, to finish its work and release its
// permit: the context of its Permit.StopRequested ends, with a *StepDownError as its cause. Nothing
// else changes: the permit stays valid until its holder releases it, and a holder that never checks
// keeps it. A holder with SemaphoreOptions.Keep or Handover releases the permit too, instead of passing
// it on. No other holder is asked: if the permit ends before the request arrives, the request has no
// effect. The reason may be empty, or up to 1024 bytes of valid UTF-8.
//
// RequestStop returns as soon as etcd has stored the request; Watch shows when the permit has been
// released. To end a permit without its holder's consent, use EvictToken.
//
// It returns ErrNotHeld if no live request holds a permit with this token; ErrInvalid, ErrClosed, ctx's
// error or one of etcd's. After the last two the request may have been stored or not; RequestStop may
// be called again: the first request that the holder receives gives the reason.
func (s *Semaphore) RequestStop(ctx context.Context, token int64, reason string) error {
	return s.queue.requestStop(ctx, token, reason)
}

// RequestStop asks the holder with this token to unlock the mutex, as Semaphore.RequestStop does. It
// returns ErrNotHeld, ErrInvalid, ErrClosed, ctx's error or one of etcd's.
func (m *Mutex) RequestStop(ctx context.Context, token int64, reason string) error {
	return m.queue.requestStop(ctx, token, reason)
}

// RequestStop asks the leader whose term has this token to resign. It is StepDown for a leader that is
// known: if another one leads, it returns ErrNotHeld. Its other errors are those of StepDown.
func (el *Election) RequestStop(ctx context.Context, token int64, reason string) error {
	return el.queue.requestStop(ctx, token, reason)
}

// requestStop is RequestStop of every kind of queue.
func (q *sessionQueue) requestStop(ctx context.Context, token int64, reason string) error {
	err := engine.CheckReason(reason)
	if err == nil {
		err = q.do(ctx, func(ctx context.Context) error {
			r, holds, err := q.holderWith(ctx, token)
			if err == nil && holds {
				holds, err = q.askToStop(ctx, r, reason)
			}
			if err == nil && !holds {
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
func (q *sessionQueue) holderWith(ctx context.Context, token int64) (r mirror.Request, holds bool, err error) {
	in := q
	if q.total != nil {
		in = q.total
	}
	v, err := in.read(ctx)
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
	o, found, err := in.atKey(ctx, v.Holders[at])
	return o.Request, found && (in == q || o.queue == q), err
}

// askToStop stores the request that a holder release its permit, and reports whether it still held then.
func (q *sessionQueue) askToStop(ctx context.Context, holder mirror.Request, reason string) (bool, error) {
	n := record.Notice{Cause: record.CauseStepDown, Reason: reason, By: q.sess.Owner(), Key: holder.Key}
	key := q.sess.Space().Session(holder.Slot.Lease).StepDown(holder.Create)
	put := clientv3.OpPut(key, n.Encode(), clientv3.WithLease(clientv3.LeaseID(holder.Slot.Lease)))
	return commit.PutBeside(ctx, q.sess.KV(), holder.Key, holder.Create, put)
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
