package schedlock

import (
	"context"
	"errors"

	"go.uber.org/zap"
)

// callDone calls Options.Done for a call that returns. If the function has panicked, the call does
// not return, and the run calls Options.Done.
func (l *Locker) callDone(res *Result, err *error) {
	if l.opts.Done != nil && (res.Outcome != NotClaimed || *err != nil) {
		l.opts.Done(*res, *err)
	}
}

// report logs the result of a call whose caller drops it, as cron libraries do, so that a job that
// fails each night is noticed.
func (l *Locker) report(res Result, err error) {
	log := l.log.With(zap.String("job", res.Job), zap.Time("tick", res.Tick))
	if res.Outcome.Started() {
		l.mu.Lock()
		delete(l.refused, res.Job)
		l.mu.Unlock()
		log = log.With(zap.Int("attempt", res.Attempt), zap.Duration("took", res.Took))
	}
	if res.Unconfirmed != nil {
		log.Warn("the end of a run is not confirmed by etcd", zap.Stringer("outcome", res.Outcome), zap.NamedError("unconfirmed", res.Unconfirmed))
	}
	switch {
	case err == nil && res.Outcome.Started():
		log.Debug("a job has run")
	case err == nil:
		by := res.Owner
		if res.Paused != nil {
			by = res.Paused.By
		}
		log.Debug("a tick was not started by this process", zap.Stringer("outcome", res.Outcome), zap.String("by", by))
	case res.Outcome == Lost:
		log.Warn("a run was lost; another run may have started before its function returned", zap.Error(err))
	case res.Outcome.Started():
		log.Warn("a run failed", zap.Error(err))
	case errors.Is(err, ErrClosed) || errors.Is(err, context.Canceled):
		log.Debug("a tick was not started: the ctx or the session has ended", zap.Error(err))
	case errors.Is(err, ErrSettings) || errors.Is(err, ErrInvalid):
		if l.newRefusal(res.Job, err) {
			log.Warn("a job is refused, and does not run in this process", zap.Error(err))
		}
	default:
		log.Warn("a tick could not be claimed", zap.Error(err))
	}
}

// newRefusal records why a job is refused, and reports whether the reason is new: it is the same at
// each tick.
func (l *Locker) newRefusal(job string, err error) bool {
	why := err.Error() // includes the tick, unless it is one of these
	if settings, ok := errors.AsType[*SettingsError](err); ok {
		why = settings.Error()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused[job] == why {
		return false
	}
	l.refused[job] = why
	return true
}
