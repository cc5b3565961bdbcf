package concurrency

import (
	"context"
	"time"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keep"
	"github.com/etcdkit/etcdkit/internal/queue"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/observe"
)

// Permits that stay in their process between calls: internal/keep.

// newKeeper returns what keeps the permits of a semaphore, or nil if the options ask for nothing.
func newKeeper(s *semaphore, o *SemaphoreOptions) *keep.Keeper {
	q := s.queue
	return keep.New(keep.Options{
		Session: q.sess, Queue: q.Queue, Keep: o.Keep, Handover: o.Handover, Wanted: s.limit,
		Fetch: func(ctx context.Context, waits func(*queue.Full)) (*keep.Holder, error) {
			r := request{doing: "acquire", Request: queue.Request{Weight: 1}}
			p, err := (&attempt{queue: q, request: r, terms: s.terms(), caller: ctx, begun: time.Now(), fetches: waits}).within(ctx)
			if err != nil {
				return nil, err
			}
			return &p.kept, nil
		},
		Ended: func() { q.sharing.permits.Add(-1) },
	})
}

// isPlain reports whether a request may be granted any permit that is kept (W19 in
// internal/proof/tested-failures.md).
func (r *request) isPlain() bool { return r.Weight == 1 && !r.hasID && r.Note == "" }

// take returns a permit that was kept, or nil: then etcd is asked.
func (t terms) take(ctx context.Context, q *sessionQueue, r *request) (p *Permit) {
	permit := func() *keep.Holder {
		p = t.permit(q, r)
		return &p.kept
	}
	if t.keeper.Take(ctx, permit) || r.Bounded && t.keeper.WithdrawSurplus(ctx) && t.keeper.Take(ctx, permit) {
		return p
	}
	return nil
}

// isLocal reports whether a call waits in the local queue of its process.
func (a *attempt) isLocal() bool {
	return a.keeper != nil && a.keeper.Handover > 0 && !a.Bounded && a.fetches == nil
}

// waitLocally is attempt.within in the local queue.
func (a *attempt) waitLocally(ctx context.Context) (*Permit, error) {
	p := a.permit(a.queue, &a.request)
	if err := a.keeper.Wait(ctx, &p.kept); err != nil {
		return nil, err
	}
	return p, nil
}

// held is a permit as its epoch, and the key by which it is kept, know it: a keep.Permit whose methods are not the
// permit's.
type held Permit

func (h *held) permit() *Permit { return (*Permit)(h) }

// Begin implements keep.Permit, as do the following methods.
func (h *held) Begin(ctx context.Context, e *engine.Epoch, t *queue.Ticket, since time.Time) {
	h.epoch, h.ticket, h.token, h.since = e, t, t.Token, since
	h.within = within{ctx, h.permit()}
	h.life.Begin((*origin)(h), e, (*ends)(h))
}

// Bound has the permit end by MaxHold.
func (h *held) Bound() {
	if h.maxHold > 0 {
		_ = h.life.Bound(h.since.Add(h.maxHold))
	}
}

// Lasts reads the clocks for MaxHold, too.
func (h *held) Lasts(trusted bool) bool { return trusted && h.maxHold == 0 || h.life.Err() == nil }

// End ends it.
func (h *held) End(cause error) bool {
	if !h.life.End(cause) {
		return false
	}
	h.released.Store(true)
	return true
}

// Cause names the token.
func (h *held) Cause() error { return h.queue.ending(h.ticket, ErrReleased, "") }

// Stayed is the end of Release.
func (h *held) Stayed(at time.Time) {
	h.permit().finish(nil)
	h.permit().holdEnded(observe.Released, "", nil, at.Sub(h.since))
}

// KeyGone asks etcd for the reason.
func (h *held) KeyGone() { h.permit().keyGone() }

// Lose implements engine.Holder, as do the following methods.
func (h *held) Lose(cause, reason error) (report func()) {
	return h.permit().lose(h.queue.ending(h.ticket, cause, reason.Error()))
}

// Evicted ends it by a notice.
func (h *held) Evicted(n record.Notice) (report func()) {
	return h.permit().lose(h.queue.endingBy(h.ticket, n))
}

// StepDown asks its holder to release it.
func (h *held) StepDown(n record.Notice) { h.permit().askToStepDown(n) }

// Released reports whether its holder has.
func (h *held) Released() bool { return h.released.Load() }
