package concurrency

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// Lead campaigns and runs fn while this process is the leader, term after term, until fn has
// done its work or ctx ends. fn's context is a child of ctx that also ends when the term is
// lost, with a *LostError as its cause; when a StepDown is requested, with a *StepDownError;
// and when the session's Close begins, with ErrClosed. fn must have ended its work when it
// returns, and should return soon after its context has ended: the term is released only
// then, unless etcd ends it before. At most one fn of an election runs at a time, as far as
// contexts end in time: see the package documentation.
//
// A fn that works in passes asks term.Err before each of them. Both cases of a select are ready when a
// process continues after a pause, its context's end and a timer's, and Go may take the timer's: a new
// pass would begin under another leader.
//
// When fn returns, the first of these cases that applies decides what Lead does next:
//
//   - ctx has ended, or the session closes: Lead resigns and returns fn's error joined with
//     ctx's, or with ErrClosed.
//   - The term was lost, or a StepDown was requested: the work counts as not done, even if fn
//     returned nil, and fn's error is only logged. Lead resigns and campaigns again, at the end
//     of the queue, so fn can run again. Before that it pauses for about 10 ms, which grows to
//     about a second while terms are lost within less than the session's TTL. A candidate that
//     is evicted campaigns again too.
//   - The term was valid, or fn had released it: Lead resigns and returns fn's error, nil
//     included. If etcd reports that the term's key was gone before, a *LostError is joined.
//
// If fn panics or exits its goroutine, Lead resigns and does not recover. Lead waits for etcd
// to confirm its resignation at most for SessionOptions.ReleaseTimeout, and not at all if ctx
// has ended when fn returns. A missing confirmation is not an error; the resignation
// continues in the background.
//
// The options are those of Campaign and count for each term. TakeOver is ErrInvalid, because
// two such processes would take over from each other for ever. With MaxHold the term ends
// after that time even if fn is stuck. An error of Campaign other than an eviction ends Lead:
// ErrFull by Wait or MaxWaiters, ErrUnavailable by Wait, a *HeldError, ErrInvalid,
// ErrTooMany, ErrClosed, ctx's error, or one of etcd's that a repetition would not change.
func (el *Election) Lead(ctx context.Context, fn func(ctx context.Context, term *Permit) error, opts ...AcquireOption) error {
	q := el.queue
	r, err := candidate(opts)
	switch {
	case fn == nil:
		err = invalid("the function is nil")
	case err == nil && r.TakeOver:
		err = invalid("TakeOver: two processes that lead with it would evict each other for ever; use Campaign")
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return q.failed("lead", err)
	}
	var pause commit.Backoff
	for {
		term, err := el.campaign(ctx, r, nil)
		var evicted *LostError
		switch {
		case err == nil:
			begun := time.Now()
			again, err := term.lead(ctx, fn)
			if !again {
				return err
			}
			if !errors.Is(term.Err(), ErrLost) || time.Since(begun) > q.sess.TTL() {
				pause.Reset()
			}
		case !errors.As(err, &evicted):
			return err
		}
		wait, cancel := q.sess.Open(ctx)
		_ = pause.Wait(wait, nil) // whatever has ended, Campaign returns it
		cancel()
	}
}

// lead runs fn for one term and then resigns, however fn ends. It reports whether to
// campaign again.
func (p *Permit) lead(ctx context.Context, fn func(context.Context, *Permit) error) (again bool, err error) {
	work, cancel := context.WithCancelCause(p.working(ctx))
	requested := p.StopRequested()
	stop := context.AfterFunc(requested, func() { cancel(context.Cause(requested)) })
	defer func() {
		stop()
		cancel(nil)
		early := p.Err() // reads the clocks
		wish := context.Cause(requested)
		switch {
		case early == nil:
			early = wish
		case p.released.Load() && !errors.Is(wish, ErrStepDown) && !errors.Is(wish, ErrClosed):
			early = nil // by fn, before it returned
		}
		again, err = p.judge(ctx, err, early, p.releaseAfterWork(ctx))
	}()
	return false, fn(work, p)
}

// judge decides what follows from how a term has ended: fn's own error, what ended the
// term before fn returned, if anything did, and the loss that its release found.
func (p *Permit) judge(ctx context.Context, own, early, lost error) (again bool, err error) {
	q := p.queue
	switch {
	case ctx.Err() != nil:
		err = withEnd(own, ctx.Err())
		if lost != nil {
			err = withEnd(err, lost)
		}
		return false, q.named("lead", err)
	case errors.Is(early, ErrClosed):
		if own == context.Canceled { //nolint:errorlint // that of its own context, not the caller's
			own = nil
		}
		return false, q.named("lead", withEnd(own, early))
	case early != nil:
		q.sess.Log().Info("a term ended before its function returned; the process campaigns again", zap.String("name", q.name),
			zap.Int64("token", p.token), zap.NamedError("cause", early), zap.NamedError("returned", own))
		return true, nil
	}
	if lost == nil {
		return false, own // as it is
	}
	return false, withEnd(own, lost)
}
