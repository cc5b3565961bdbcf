package schedlock

import (
	"context"
	"errors"
	"time"

	"github.com/etcdkit/etcdkit/observe"
)

// How calls and runs are reported to the hooks of the session.

// endOfClaim returns how a claim has ended that returns this outcome and err. cooling is set if StillRunning means a
// cooldown, and ended is the error of the caller's ctx.
func endOfClaim(claimed bool, outcome Outcome, cooling bool, err, ended error) (observe.Result, observe.Reason) {
	switch {
	case claimed:
		return observe.Granted, ""
	case errors.Is(err, errRemoved):
		return observe.Error, observe.Closed
	case errors.Is(err, ErrInvalid):
		return observe.Error, observe.Invalid
	case errors.Is(err, ErrSettings):
		return observe.Refused, observe.Mismatch
	case errors.Is(err, ErrUnavailable):
		return observe.GaveUp, observe.Unavailable
	case ended != nil && errors.Is(err, context.DeadlineExceeded):
		return observe.GaveUp, observe.Deadline
	case ended != nil && errors.Is(err, ended):
		return observe.GaveUp, observe.Canceled
	case errors.Is(err, ErrClosed):
		return observe.Error, observe.Closed
	case err != nil:
		return observe.Error, observe.Etcd
	}
	switch outcome {
	case StillRunning:
		if cooling {
			return observe.Refused, observe.Cooldown
		}
		return observe.Refused, observe.Busy
	case Paused:
		return observe.Refused, observe.Paused
	case Late:
		return observe.Refused, observe.Late
	}
	return observe.Refused, observe.Claimed
}

// describe describes the run for hooks.
func (r *Run) describe() observe.Call {
	return observe.Call{Op: observe.Run, Kind: observe.Job, Name: r.job.name, Tick: r.claim.tick, Attempt: r.claim.attempt, Token: r.claim.token}
}

// report reports the end of the run. ctx is that of the call. panicked is set if the function has not returned.
func (r *Run) report(ctx context.Context, panicked bool) {
	if r.span == nil {
		return
	}
	o := observe.Outcome{Err: r.err, Took: time.Since(r.began), Token: r.claim.token, Tick: r.claim.tick, Attempt: r.claim.attempt}
	o.Result, o.Reason = endOfRun(r.outcome, r.err, panicked, r.endedWithSession(ctx))
	if cause := r.life.Cause(); errors.Is(cause, ErrLost) || errors.Is(cause, ErrTooLong) {
		r.locker.sess.Hooks().Event(r.Context(), observe.Overrun{Call: r.span.Call, For: r.overran()})
	}
	r.span.End(o)
}

// endedWithSession reports whether the session's lease has ended. The end of a lease deletes the lock and
// the session's presence key at one revision, and the watch may show the lock's deletion first. So a run
// that has lost its lock asks etcd for the presence key. It waits for the answer until ctx ends, and no
// longer than the session's ReleaseTimeout.
func (r *Run) endedWithSession(ctx context.Context) bool {
	epoch := r.claim.epoch.Context()
	if epoch.Err() != nil || r.outcome.Outcome != Lost || errors.Is(r.err, ErrUnlocked) {
		return epoch.Err() != nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.locker.sess.ReleaseTimeout())
	defer cancel()
	defer context.AfterFunc(epoch, cancel)()
	return r.claim.epoch.Vanished(ctx) || epoch.Err() != nil
}

// overran returns for how long the function has gone on after the end of the run.
func (r *Run) overran() time.Duration {
	if at := r.endedAt.Load(); at != 0 {
		return max(0, time.Since(r.began)-time.Duration(at))
	}
	return 0
}

// endOfRun returns how a run has ended with this result and err. session is set if the session's lease
// had ended.
func endOfRun(res Result, err error, panicked, session bool) (observe.Result, observe.Reason) {
	switch {
	case res.Outcome == Lost && errors.Is(err, ErrUnlocked):
		return observe.Lost, observe.Evicted
	case res.Outcome == Lost && errors.Is(err, ErrClosed):
		return observe.Lost, observe.Closed
	case res.Outcome == Lost && session:
		return observe.Lost, observe.SessionEnded
	case res.Outcome == Lost:
		return observe.Lost, observe.KeyGone
	case panicked:
		return observe.Failed, observe.Panic
	case errors.Is(err, ErrTooLong):
		return observe.Failed, observe.TooLong
	case res.Outcome == Failed:
		return observe.Failed, unconfirmed(res)
	}
	return observe.Done, unconfirmed(res)
}

func unconfirmed(res Result) observe.Reason {
	if res.Unconfirmed != nil {
		return observe.NotConfirmed
	}
	return ""
}
