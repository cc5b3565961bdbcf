package concurrency

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/hook"
	"github.com/etcdkit/etcdkit/internal/keep"
	"github.com/etcdkit/etcdkit/internal/life"
	"github.com/etcdkit/etcdkit/internal/queue"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/observe"
)

// Permit is what a semaphore or a mutex grants, or the term of an election. It is valid
// until it is released or lost, and never becomes valid again. It is safe for concurrent
// use.
type Permit struct {
	queue   *sessionQueue
	epoch   *engine.Epoch
	ticket  *queue.Ticket
	token   int64
	since   time.Time
	maxHold time.Duration // or 0
	source  source        // if it is of a Limiter
	within  within        // of Context, then; its ctx is that of the call
	life    life.Life
	kept    keep.Holder   // by which its key may serve the next caller of this process
	hold    *observedHold // nil without hooks

	releasing atomic.Bool // Release was called
	released  atomic.Bool // its holder has ended it
	removed   func()      // to be called when its removal is confirmed

	// These are made when they are needed: many permits end before.
	outcome atomic.Pointer[outcome]
	stop    atomic.Pointer[stopRequest]
}

// outcome is how a release ends, for the calls of Release.
type outcome struct {
	done    chan struct{} // closed when it is over
	err     error         // what they return then
	refused chan error    // has an error of etcd's if it refuses the release for now
}

func newOutcome() *outcome {
	return &outcome{done: make(chan struct{}), refused: make(chan error, 1)}
}

// origin is the context of the call that has got a permit, without its end. If the permit is of a
// Limiter, FromContext finds the permit in it.
type origin Permit

func (*origin) Deadline() (none time.Time, ok bool) { return none, false }
func (*origin) Done() <-chan struct{}               { return nil }
func (*origin) Err() error                          { return nil }
func (o *origin) Value(key any) any {
	if o.source != nil && key == (withinKey{}) {
		return &o.within
	}
	return (*Permit)(o).values().Value(key)
}

// within is the context of work under a permit.
type within struct {
	context.Context
	permit *Permit
}

type withinKey struct{}

// Value returns the context itself for withinKey.
func (w *within) Value(key any) any {
	if key == (withinKey{}) {
		return w
	}
	return w.Context.Value(key)
}

// FromContext returns the permit of a Limiter under which ctx runs, and false if there is none: in a
// function given to Limit, or to Do of a semaphore that a Limiter returned, in Permit.Context of such
// a semaphore's permit, and in contexts from NewContext. Of nested ones it returns the innermost. The
// permit may have ended. A Semaphore without a Limiter, a Mutex and an Election put no permit into a
// context by themselves.
func FromContext(ctx context.Context) (*Permit, bool) {
	if w, ok := ctx.Value(withinKey{}).(*within); ok {
		return w.permit, true
	}
	return nil, false
}

// NewContext returns a child of ctx in which FromContext finds the permit: for work under a permit
// that was acquired with another context than Permit.Context. It does not end with the permit. If p
// is nil, it returns ctx.
func NewContext(ctx context.Context, p *Permit) context.Context {
	if p == nil {
		return ctx
	}
	return &within{p.life.Around(ctx), p}
}

// source is what a permit of a Limiter is of: the default of a KeyedLimiter, or the queue of a Single.
type source any

// nested returns an error if a context has a permit of the same limiter that has not ended. Calls
// that each hold one permit and wait for a second one would wait for each other.
func nested(ctx context.Context, of source) error {
	if of == nil {
		return nil
	}
	for {
		w, ok := ctx.Value(withinKey{}).(*within)
		if !ok {
			return nil
		}
		if p := w.permit; p.source == of && p.Err() == nil {
			return invalid("the context has a permit of this limiter already, %q (token %d): two calls that hold one permit each could wait for each other; to take a second permit all the same, pass a context without the first", p.queue.name, p.token)
		}
		ctx = w.Context
	}
}

// ends is a permit as its life knows it.
type ends Permit

func (e *ends) LostCause() error  { return (*Permit)(e).lostWithSession() }
func (e *ends) LateCause() error  { return (*Permit)(e).heldTooLong() }
func (e *ends) Ended(cause error) { (*Permit)(e).after(cause) }

// Lost implements life.Hold. A permit that was released is not lost: work that continues after that, as with
// context.WithoutCancel, was detached from it.
func (e *ends) Lost(cause error) bool { return errors.Is(cause, ErrLost) }

// workEnded ends the count of the permit's work.
func (p *Permit) workEnded() { p.queue.CountPermits(-p.ticket.Weight()) }

// heldFor counts the permit in the estimates of its limiter.
func (p *Permit) heldFor(d time.Duration) {
	if b := p.queue.base; b != nil {
		b.HoldTimes.Add(d)
	}
}

// observe reports the beginning of the hold, for the call that gets the permit.
func (p *Permit) observe(ctx context.Context) {
	p.hold.begin(ctx, p.queue.call(observe.Hold, p.ticket.Weight(), p.token))
}

// values returns the ctx that has the values of work under the permit: that of the call that got it, or the one that hooks
// have made of it. The permit may end before they have: it is registered by then.
func (p *Permit) values() context.Context {
	if work := p.hold.work(); work != nil {
		return work
	}
	return p.within.Context
}

// working returns the ctx of work under the permit: that of the call that got it, with the values that hooks
// have given the hold, and known to be under the permit.
func (p *Permit) working(ctx context.Context) context.Context {
	if p.hold != nil {
		ctx = hook.With(ctx, p.values())
	}
	return p.life.Around(ctx)
}

// holdEnded reports to the hooks how the hold has ended, after that time.
func (p *Permit) holdEnded(result observe.Result, reason observe.Reason, cause error, held time.Duration) {
	p.hold.end(observe.Outcome{Result: result, Reason: reason, Err: cause, Took: held, Token: p.token})
}

// holdLost is holdEnded for an end that is not the holder's own release.
func (p *Permit) holdLost(lost *LostError, held time.Duration) {
	result, reason := endOfHold(lost, p.epoch.Context().Err() != nil)
	p.holdEnded(result, reason, lost, held)
}

// register has the permit end with its epoch. It returns engine.ErrEpoch or ErrClosed if it is
// too late for that, or a *LostError if others have ended the request already.
func (p *Permit) register() error {
	left, err := p.epoch.Hold(p.within.Context, p.ticket.Ticket, p.kept.ForEpoch())
	switch {
	case err != nil:
		return err
	case left.Notice != nil:
		return p.queue.endingBy(p.ticket.Token, *left.Notice)
	case left.Asked != nil:
		p.kept.ForEpoch().StepDown(*left.Asked) // not to be kept, either
	}
	(*internalPermit)(p).Bound()
	return nil
}

// Context returns a context that ends when the permit ends, with a *LostError as its cause
// (see context.Cause). It keeps the values of the ctx given to Acquire but not its
// cancellation, because that ctx bounded only the wait.
//
// It ends before etcd gives the permit to another request, under the assumptions named in
// the package documentation.
func (p *Permit) Context() context.Context { return p.life.Context() }

// Err returns nil while the permit is valid, and a *LostError with the cause after its end:
// errors.Is matches it with ErrLost and the exact cause, or with ErrReleased. Err reads the
// clocks itself, so its answer is right immediately after a pause of the process, even if no
// timer has fired yet.
func (p *Permit) Err() error { return p.life.Err() }

// Token returns the permit's fencing token: the revision of etcd at which the request was
// written. For a mutex and an election, tokens strictly rise from holder to holder, so a
// resource that refuses every token below the greatest one it has seen is safe from former
// holders. For a limit above 1 that rule would refuse valid holders: use Guard there. After
// etcd was restored from a backup, tokens can repeat, see docs/operations.md.
//
// A permit whose Token was asked for is not kept, see SemaphoreOptions.Keep. If it is asked for first
// after a Release that has kept the permit, Token returns 0.
func (p *Permit) Token() int64 {
	if !p.kept.Fence() {
		return 0
	}
	return p.token
}

// Guard returns a condition for a Txn of the caller's own: the Txn takes effect only while
// the permit's key exists in etcd. This does not depend on clocks. The client of the Txn must
// see the same keys as the session's client. A Txn without an operation is answered by one
// member of etcd, which may be behind: give it a Then.
//
// A permit whose Guard was asked for is not kept, see SemaphoreOptions.Keep. If it is asked for first
// after a Release that has kept the permit, the condition is never met.
func (p *Permit) Guard() clientv3.Cmp {
	if !p.kept.Fence() {
		return clientv3.Compare(clientv3.CreateRevision(p.ticket.Key), "<", 0)
	}
	return commit.Guard(p.ticket.Key, p.token)
}

// Deadline returns the time until which the permit is trusted without another renewal: each
// renewal of the session's lease moves it on, at most to the end of MaxHold.
func (p *Permit) Deadline() time.Time { return p.life.Deadline() }

// lostWithSession returns the cause of a permit that ends with its session.
func (p *Permit) lostWithSession() *LostError {
	cause, reason := p.epoch.Why()
	return p.queue.ending(p.ticket.Token, cause, reason.Error())
}

// heldTooLong returns the cause of a permit that MaxHold ends.
func (p *Permit) heldTooLong() error {
	return p.queue.ending(p.ticket.Token, ErrTooLong, fmt.Sprintf("MaxHold of %v has passed", p.maxHold))
}

// after follows an end by MaxHold, which releases the permit, or one that Err has found
// before the epoch came to this permit.
func (p *Permit) after(cause error) {
	p.heldFor(time.Since(p.since))
	if errors.Is(cause, ErrTooLong) {
		if p.kept.End() {
			p.epoch.Drop(p.ticket.Ticket)
			p.ticket.Withdraw(p.epoch)
		}
	}
	p.holdLost(cause.(*LostError), time.Since(p.since)) //nolint:errorlint // nothing wraps it
}

// lose ends the permit here, in any way but the holder's own release. It returns what reports
// that to the hooks, for the caller to call once that delays nothing else, or nil if the
// permit had ended before. Whether its key is gone is the caller's concern.
func (p *Permit) lose(lost *LostError) (report func()) {
	if !p.life.End(lost) {
		return nil
	}
	held := time.Since(p.since)
	p.heldFor(held)
	return func() { p.holdLost(lost, held) }
}

// keyGone ends a permit whose key is gone from etcd. A notice of the process that deleted it arrives on
// another watch, and so does the deletion of the session's presence key, if the lease has ended.
func (p *Permit) keyGone() {
	lost := p.queue.ending(p.ticket.Token, ErrLost, "its key was deleted")
	switch n, err := p.epoch.FindNotice(p.Context(), p.ticket.Ticket); {
	case n != nil:
		lost = p.queue.endingBy(p.ticket.Token, *n)
	case err != nil:
		lost.Reason += fmt.Sprintf("; whether another process did that is not known: %v", p.queue.sess.Explain(err))
	case p.epoch.Vanished(p.Context()):
		lost = p.lostWithSession()
	}
	if report := p.lose(lost); report != nil {
		p.epoch.Drop(p.ticket.Ticket)
		p.epoch.Free(p.ticket.Ticket)
		p.queue.sess.Report(report)
	}
}

// internalPermit is a permit as its epoch, and the key by which it is kept, know it: a keep.Permit whose methods are not the
// permit's.
type internalPermit Permit

func (h *internalPermit) permit() *Permit { return (*Permit)(h) }

// Begin implements keep.Permit, as do the following methods.
func (h *internalPermit) Begin(ctx context.Context, e *engine.Epoch, t *queue.Ticket, since time.Time) {
	h.epoch, h.ticket, h.token, h.since = e, t, t.Token, since
	h.within = within{ctx, h.permit()}
	h.life.Begin((*origin)(h), e, (*ends)(h))
}

// Bound has the permit end by MaxHold.
func (h *internalPermit) Bound() {
	if h.maxHold > 0 {
		_ = h.life.Bound(h.since.Add(h.maxHold))
	}
}

// Lasts reads the clocks for MaxHold, too.
func (h *internalPermit) Lasts(trusted bool) bool {
	return trusted && h.maxHold == 0 || h.life.Err() == nil
}

// Vacate ends it.
func (h *internalPermit) Vacate(cause error) bool {
	if !h.life.End(cause) {
		return false
	}
	h.released.Store(true)
	return true
}

// Ending names the token.
func (h *internalPermit) Ending() error { return h.queue.ending(h.ticket.Token, ErrReleased, "") }

// KeyGone asks etcd for the reason.
func (h *internalPermit) KeyGone() { h.permit().keyGone() }

// Lose implements engine.Holder, as do the following methods.
func (h *internalPermit) Lose(cause, reason error) (report func()) {
	return h.permit().lose(h.queue.ending(h.ticket.Token, cause, reason.Error()))
}

// Evicted ends it by a notice.
func (h *internalPermit) Evicted(n record.Notice) (report func()) {
	return h.permit().lose(h.queue.endingBy(h.ticket.Token, n))
}

// StepDown asks its holder to release it.
func (h *internalPermit) StepDown(n record.Notice) { h.permit().askToStepDown(n) }

// Released reports whether its holder has.
func (h *internalPermit) Released() bool { return h.released.Load() }

// StopRequested returns a context that ends when the holder should finish its work and
// release the permit: with a *StepDownError as its cause after RequestStop or Election.StepDown,
// with ErrClosed when Close of the session begins to wait, and when the permit ends, as Context
// does; the first of these counts. The context of a permit that work in progress acquires after Close has begun has ended at once.
// The permit itself stays valid until it is released or lost.
func (p *Permit) StopRequested() context.Context {
	s := p.stopping()
	s.closing.Do(func() {
		accept := p.epoch.Accepting()
		stop := context.AfterFunc(accept, func() { s.ask(context.Cause(accept)) })
		context.AfterFunc(p.Context(), func() { stop() })
	})
	return s.asked
}

// stopRequest is what StopRequested returns.
type stopRequest struct {
	asked   context.Context
	ask     context.CancelCauseFunc
	closing sync.Once // asked ends with Close, too: from the first StopRequested on
}

// stopping returns what StopRequested is made of.
func (p *Permit) stopping() *stopRequest {
	if p.stop.Load() == nil {
		s := &stopRequest{}
		s.asked, s.ask = context.WithCancelCause(p.Context())
		if !p.stop.CompareAndSwap(nil, s) {
			s.ask(nil)
		}
	}
	return p.stop.Load()
}

// askToStepDown ends the context of StopRequested.
func (p *Permit) askToStepDown(n record.Notice) {
	p.stopping().ask(&StepDownError{Name: p.queue.name, Token: p.token, Reason: noticeReason(n)})
}
