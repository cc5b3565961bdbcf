package concurrency

import (
	"context"
	"errors"
	"time"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// Release releases the permit and ends its context. The work that it protects must
// have ended before. Release returns nil once etcd has confirmed the release.
// Otherwise it returns
//
//   - a *LostError (ErrLost) if the permit had ended before the call, or if etcd
//     answers that its key was gone before the release: the work may have overlapped
//     with another holder's. A permit that was released with ReleaseID is no loss, and
//     the result is nil;
//   - an *UnconfirmedError (ErrUnconfirmed) if the permit was valid when Release was
//     called, but etcd has not confirmed the release: ctx has ended, which may have been
//     before the call, or etcd refuses the release, for want of a permission perhaps, or
//     the session's lease has ended meanwhile. This is no loss. It wraps ctx's error, or
//     etcd's.
//
// After an *UnconfirmedError the release continues in the background until etcd
// confirms it or the session's lease ends. Until then the permit counts as held in etcd,
// at the latest until etcd expires the lease. Release may be called again, and by several
// goroutines at once: each call waits for the first release and returns its outcome.
func (p *Permit) Release(ctx context.Context) error {
	first := false
	p.release.Do(func() { first = true })
	var why error
	if first {
		why = p.startRelease(ctx)
	}
	select {
	case <-p.done:
		return p.err
	default:
	}
	select {
	case <-p.done:
		return p.err
	case why = <-p.refused:
		p.refused <- why // for the next call
	case <-ctx.Done():
		if !errors.Is(why, ctx.Err()) {
			why = ctx.Err()
		}
	}
	return p.unconfirmed(why)
}

// releaseAfterWork is Release for a permit whose function has returned. It waits for
// etcd's confirmation no longer than SessionOptions.ReleaseTimeout, and returns an error
// only if the permit was lost: that etcd has not confirmed the release says nothing
// against the work, and a caller who took it for a failure would do the work again.
func (p *Permit) releaseAfterWork(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.gate.sess.opts.ReleaseTimeout)
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
	if p.Err() != nil || p.end(ErrReleased, "") == nil {
		lost := p.Err()
		if !errors.Is(lost, ErrLost) {
			lost = nil // others have released it, by its ID
		}
		p.finishRelease(lost)
		return nil
	}
	p.given.Store(true)
	p.epoch.goes(p.claim)
	var why error
	doubt := false // an answer was lost: if the key is gone, that was us
	if ctx.Err() == nil {
		merged, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(p.epoch.ctx, cancel)
		removal, err := commit.Remove(merged, p.gate.sess.client, p.claim.key, p.token, p.claim.also...)
		stop()
		cancel()
		if err == nil {
			p.answered(ctx, removal, held)
			return nil
		}
		why, doubt = err, removal == commit.Vanished
	}
	again := func() {
		removal, err := commit.Erase(p.epoch.ctx, p.gate.sess.client, p.claim.key, p.token, p.refusal, p.claim.also...)
		switch {
		case err != nil: // the lease has ended
			unconfirmed := p.unconfirmed(p.epoch.whyEnded())
			p.finishRelease(unconfirmed)
			p.gate.sess.opts.Trace.unconfirmed(unconfirmed)
		case removal == commit.Absent && doubt:
			p.answered(p.epoch.ctx, commit.Vanished, held)
		default:
			p.answered(p.epoch.ctx, removal, held)
		}
	}
	if p.epoch.ctx.Err() != nil || !p.gate.sess.background(again) {
		again() // the lease has ended: nothing is left to do
	}
	return why
}

// answered ends a release for which etcd has said whether it removed the key. If it did
// not, there may be a notice of who did that has not come yet.
func (p *Permit) answered(ctx context.Context, removal commit.Removal, held time.Duration) {
	if removal == commit.Absent {
		lost := &LostError{Name: p.gate.name, Token: p.token, Cause: ErrLost, Reason: "its key was gone before it was released"}
		if n, ok := p.epoch.noticeFor(ctx, p.claim); ok {
			lost = noticed(p.gate.name, p.token, n)
		}
		p.epoch.freeSlot(p.claim) // not before: a notice that comes then is not kept
		if errors.Is(lost, ErrLost) {
			p.finishRelease(lost)
		} else {
			p.finishRelease(nil)
		}
		p.gate.sess.opts.Trace.lost(lost)
		return
	}
	p.epoch.freeSlot(p.claim)
	p.finishRelease(nil)
	p.gate.sess.opts.Trace.released(ReleaseInfo{Name: p.gate.name, Token: p.token, Held: held})
}

// refusal reports to the callers of Release that etcd refuses it.
func (p *Permit) refusal(err error) {
	p.gate.refusal(p.claim)(err)
	p.refused <- err
}

func (p *Permit) unconfirmed(why error) *UnconfirmedError {
	return &UnconfirmedError{Name: p.gate.name, Token: p.token, Cause: p.gate.sess.explain(why)}
}

// finishRelease ends the release with what Release returns from now on.
func (p *Permit) finishRelease(err error) {
	p.err = err
	p.epoch.drop(p)
	close(p.done)
}
