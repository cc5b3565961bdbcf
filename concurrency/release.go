package concurrency

import (
	"context"
	"errors"
	"time"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/join"
	"github.com/etcdkit/etcdkit/observe"
)

// Release releases the permit and ends its context. The work that it protects must
// have ended before. Release returns nil once etcd has confirmed the release, or at once if the
// permit is kept for the next call (SemaphoreOptions.Keep). Otherwise it returns
//
//   - a *LostError (ErrLost) if the permit had ended before the call, or if etcd
//     reports that its key was gone before the release: the work may have overlapped
//     with another holder's. After Evict or TakeOver it matches ErrEvicted, and its
//     Reason names the process and its reason. In one rare case, when etcd's client sends
//     the deletion twice by itself, the error is a false alarm;
//   - an *UnconfirmedError (ErrUnconfirmed) if the permit was valid when Release was
//     called, but etcd has not confirmed the release: ctx has ended, which may have been
//     before the call, or etcd refuses the release, for want of a permission perhaps, or
//     the session's lease has ended meanwhile and no answer came. This is no loss. It
//     wraps ctx's error, or etcd's.
//
// If another session ends the permit while Release is in flight, the result depends on
// that: nil after ReleaseID, which is no loss, and a *LostError after Evict or TakeOver,
// even if Release's own answer is lost or does not arrive before ctx ends. Err and the
// cause of Context stay those of the end that came first.
//
// After an *UnconfirmedError the release continues in the background until etcd
// confirms it or the session's lease ends. Until then the permit counts as held in etcd,
// at the latest until etcd expires the lease. Release may be called again, and by several
// goroutines at once: each call waits for the first release and returns its outcome.
func (p *Permit) Release(ctx context.Context) error {
	hooks := p.queue.sess.Hooks()
	if !hooks.On() {
		return p.release(ctx)
	}
	begun := time.Now()
	ctx, span := hooks.Start(ctx, p.queue.call(observe.Release, p.ticket.Weight(), p.token))
	err := p.release(ctx)
	o := observe.Outcome{Err: err, Took: time.Since(begun), Token: p.token}
	o.Result, o.Reason = endOfRelease(err, p.epoch.Context().Err() != nil)
	span.End(o)
	return err
}

func (p *Permit) release(ctx context.Context) error {
	var why error
	if p.releasing.CompareAndSwap(false, true) {
		if p.kept.Release() {
			return nil
		}
		p.workEnded()
		why = p.startRelease(ctx)
	}
	o := p.awaited()
	select {
	case <-o.done:
		return o.err
	default:
	}
	select {
	case <-o.done:
		return o.err
	case why = <-o.refused:
		o.refused <- why // for the next call
	case <-ctx.Done():
		if !errors.Is(why, ctx.Err()) {
			why = ctx.Err()
		}
	}
	if lost := p.endedByOthers(); lost != nil {
		return lost.loss()
	}
	return p.unconfirmed(why)
}

// do runs fn under a permit and releases it, however fn ends: by return, panic or
// runtime.Goexit.
func (p *Permit) do(ctx context.Context, fn func(context.Context, *Permit) error) (err error) {
	work, cancel := context.WithCancelCause(p.working(ctx))
	stop := context.AfterFunc(p.Context(), func() { cancel(context.Cause(p.Context())) })
	defer func() {
		stop()
		cancel(nil)
		if lost := p.releaseAfterWork(ctx); lost != nil {
			err = withEnd(err, lost)
		}
	}()
	if p.source != nil {
		work = &within{work, p}
	}
	return fn(work, p)
}

// withEnd joins fn's error with what has ended its context, unless fn's error wraps that: it
// is printed once.
func withEnd(own, ended error) error {
	if errors.Is(own, ended) {
		return own
	}
	return join.Errors(own, ended)
}

// releaseAfterWork is Release for a permit whose function has returned. It waits for
// etcd's confirmation no longer than SessionOptions.ReleaseTimeout, and returns an error
// only if the permit was lost: an unconfirmed release is no failure of the
// work, and a caller that took it for one would do the work again.
func (p *Permit) releaseAfterWork(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.queue.sess.ReleaseTimeout())
	defer cancel()
	if err := p.Release(ctx); errors.Is(err, ErrLost) {
		return err
	}
	return nil
}

// startRelease deletes the permit's key. It returns nil when the outcome is known, and
// otherwise, when ctx or the session's lease has ended, why it is not; then the release
// continues in the background.
func (p *Permit) startRelease(ctx context.Context) error {
	held := time.Since(p.since)
	if !p.released.Load() && (p.Err() != nil || !p.life.End(p.queue.ending(p.ticket.Token, ErrReleased, ""))) {
		lost, _ := errors.AsType[*LostError](p.Err())
		p.finishRelease(lost.loss())
		p.hold.overrun()
		return nil
	}
	p.released.Store(true)
	p.kept.End()
	p.epoch.Deletes(p.ticket.Ticket)
	p.removed = p.ticket.Leaves()
	stored := p.ticket.Stored
	var why error
	doubt := false // an answer was lost: if the key is gone, that was us
	if ctx.Err() == nil {
		timed, cancel := p.epoch.Answers(ctx)
		defer cancel()
		removal, err := p.queue.sess.Remove(timed, stored)
		if err == nil {
			err = p.answered(timed, removal, held)
		}
		if err == nil {
			return nil
		}
		why, doubt = err, removal == commit.Vanished
	}
	leaseEnded := func() { // etcd has not answered, and will not
		if lost := p.endedByOthers(); lost != nil {
			p.conclude(lost, held)
			return
		}
		unconfirmed := p.unconfirmed(p.epoch.WhyEnded())
		p.finishRelease(unconfirmed)
		p.holdEnded(observe.Unconfirmed, "", unconfirmed, held)
	}
	again := func() {
		if p.releaseAgain(stored, doubt, held) != nil {
			leaseEnded()
		}
	}
	if p.epoch.Context().Err() != nil || !p.queue.sess.Callback(again) {
		leaseEnded()
	}
	return why
}

// releaseAgain repeats the deletion of the permit's key until it is known what became of that. It returns an error if the
// lease ends first. doubt says that an earlier deletion was not answered. The first refusal of etcd's, of the deletion or of
// the read that asks for a notice, is reported to the callers of Release.
func (p *Permit) releaseAgain(stored engine.Stored, doubt bool, held time.Duration) error {
	timed, cancel := p.epoch.Answers(context.Background())
	defer cancel()
	reported := false
	removal, err := p.queue.sess.Erase(timed, stored, func(err error) {
		reported = true
		p.ticket.DeletionRefused(err)
		p.refuse(err)
	})
	if err != nil {
		return err
	}
	if removal == commit.Absent && doubt {
		removal = commit.Vanished
	}
	if err = p.answered(timed, removal, held); commit.Denied(err) && !reported {
		p.refuse(err)
	}
	return commit.AllowedAfter(timed, err, p.epoch.Valid, func() error { return p.answered(timed, removal, held) })
}

// answered ends a release for which etcd has responded whether it removed the key. If it did
// not, or may not have, a notice of the process that did may still be on its way. It returns
// ctx's error if that ends first, etcd's if that refuses to say whether there is a notice, and engine.ErrEpoch if the lease
// may have removed it instead.
func (p *Permit) answered(ctx context.Context, removal commit.Removal, held time.Duration) error {
	if removal != commit.Removed {
		n, err := p.epoch.FindNotice(ctx, p.ticket.Ticket)
		switch {
		case err != nil:
			return err
		case n != nil:
			p.conclude(p.queue.endingBy(p.ticket.Token, *n), held)
			return nil
		}
		if removal != commit.Partial {
			next, err := p.queue.sess.EraseJoined(ctx, p.ticket.Stored, nil)
			if err != nil && (removal == commit.Vanished || p.epoch.Context().Err() == nil) {
				return err // otherwise it goes with the lease, and the loss is known
			}
			if next == commit.Removed {
				removal = commit.Absent
			}
		}
		gone := p.epoch.Vanished(ctx)
		if gone && removal == commit.Vanished {
			return engine.ErrEpoch
		}
		if removal != commit.Vanished {
			lost := p.queue.ending(p.ticket.Token, ErrLost, "its key was gone before it was released")
			if gone {
				lost = p.lostWithSession()
			}
			p.conclude(lost, held)
			return nil
		}
	}
	p.epoch.Free(p.ticket.Ticket)
	if removal == commit.Removed { // after a lost answer, the key may have been gone before it was counted
		p.removed()
	}
	p.heldFor(held)
	p.finishRelease(nil)
	p.holdEnded(observe.Released, "", nil, held)
	return nil
}

// endedByOthers returns how others have ended a permit that is being released, if a notice
// of that has come: then its key is gone, whatever becomes of the release's own answer.
func (p *Permit) endedByOthers() *LostError {
	if n := p.epoch.Notice(p.ticket.Ticket); n != nil {
		return p.queue.endingBy(p.ticket.Token, *n)
	}
	return nil
}

// conclude ends the release of a permit whose key was gone.
func (p *Permit) conclude(lost *LostError, held time.Duration) {
	p.epoch.Free(p.ticket.Ticket) // not before: a notice that comes then is not kept
	p.finishRelease(lost.loss())
	p.holdLost(lost, held)
}

// loss returns e as the result of a release: nil if others have released the permit, by
// its ID.
func (e *LostError) loss() error {
	if errors.Is(e, ErrLost) {
		return e
	}
	return nil
}

// refuse reports to the callers of Release that etcd refuses it, once.
func (p *Permit) refuse(err error) {
	p.awaited().refused <- err
}

func (p *Permit) unconfirmed(why error) *UnconfirmedError {
	return &UnconfirmedError{Name: p.queue.name, Token: p.token, Cause: p.queue.sess.Explain(why)}
}

// finishRelease ends the release with what Release returns from now on.
func (p *Permit) finishRelease(err error) {
	p.epoch.Drop(p.ticket.Ticket)
	p.finish(err)
}

// success is the outcome of each release that has succeeded before a call waited for it.
var success = func() *outcome {
	o := newOutcome()
	close(o.done)
	return o
}()

// finish ends the release for its callers. It is called once.
func (p *Permit) finish(err error) {
	if err == nil && p.outcome.CompareAndSwap(nil, success) {
		return
	}
	o := p.awaited()
	o.err = err
	close(o.done)
}

// awaited returns the outcome of the release, which may be waited for.
func (p *Permit) awaited() *outcome {
	if p.outcome.Load() == nil {
		p.outcome.CompareAndSwap(nil, newOutcome())
	}
	return p.outcome.Load()
}

// Stayed is the end of Release.
func (h *internalPermit) Stayed(at time.Time) {
	h.permit().finish(nil)
	h.permit().holdEnded(observe.Released, "", nil, at.Sub(h.since))
}
