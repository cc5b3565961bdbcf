package idempotency

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/idempotency/internal/unclaimed"
	"github.com/etcdkit/etcdkit/observe"
)

// Runs of handlers without a claim: see package unclaimed.

// KeepUnclaimed is for package unclaimed.
func (s *settings) KeepUnclaimed(into *unclaimed.Run) { s.unclaimed = into }

// unclaimedRun is an unclaimed.Run.
type unclaimedRun struct {
	attempt *Attempt // for the keys of calls
	because error
}

// Start implements unclaimed.Run.
func (u *unclaimedRun) Start(ctx context.Context) (_ context.Context, stop func()) {
	a := u.attempt
	u.report(ctx)
	around := attemptOf(ctx)
	a.once = around != nil && around.once
	a.ctx = attemptCtx{context.WithoutCancel(ctx), a}
	work, end := context.WithCancelCause(&a.ctx)
	work, cancel := context.WithTimeoutCause(work, a.set.MaxExecution, a.late())
	lost := afterLoss(ctx, end)
	// After that a duplicate may begin an attempt, also if the handler has not returned. No other run without a claim begins
	// until End.
	overdue := context.AfterFunc(work, func() { time.AfterFunc(a.store.sess.Margin(), u.endFlight) })
	return work, func() { overdue(); lost(); cancel(); end(nil) }
}

// endFlight ends the wait of duplicates in this process, unless it has ended.
func (u *unclaimedRun) endFlight() {
	a := u.attempt
	a.store.flights.end(a.entry.Ref, a.flight, nil, false)
}

// report counts the run, and reports it to hooks and in the log.
func (u *unclaimedRun) report(ctx context.Context) {
	s, a := u.attempt.store, u.attempt
	s.count.add(&s.count.Unclaimed, 1)
	if hooks := s.sess.Hooks(); hooks.On() {
		hooks.Event(ctx, observe.Unclaimed{Call: described(s, observe.Execute, a.key), Err: u.because})
	}
	if s.away.warns(time.Now()) {
		s.log.Warn("handlers run without a claim (FailOpen)", zap.Int64("unclaimed", s.count.now().Unclaimed), zap.String("op", a.key.Op), zap.String("ref", a.entry.Ref), zap.Error(u.because))
	}
}

// End implements unclaimed.Run.
func (u *unclaimedRun) End() {
	u.attempt.store.away.settle(u.attempt)
	u.endFlight()
}
