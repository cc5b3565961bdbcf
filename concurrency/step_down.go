package concurrency

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
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
		n := record.Notice{Cause: record.CauseStepDown, Reason: reason, By: q.sess.Owner()}
		key := q.sess.Space().Session(int64(asked.Lease)).StepDown(asked.Token)
		put := clientv3.OpPut(key, n.Encode(), clientv3.WithLease(asked.Lease))
		_, err = commit.PutBeside(ctx, q.sess.KV(), v.Holders[0].Key, asked.Token, put)
		return err
	})
	if err != nil {
		return Leader{}, q.failed("step down in", err)
	}
	return asked, nil
}

// StopRequested returns a context that ends when the holder should finish its work and
// release the permit: with a *StepDownError as its cause after Election.StepDown, with
// ErrClosed when Close of the session begins to wait, and when the permit ends, as Context
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
