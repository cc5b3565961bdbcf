package schedlock

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
)

// tell calls Options.Done for a call that returns. For one that does not, since its function
// has panicked, the run does.
func (l *Locker) tell(res *Result, err *error) {
	if l.opts.Done != nil && (res.Outcome != NotClaimed || *err != nil) {
		l.opts.Done(*res, *err)
	}
}

// report logs the result of a call whose caller drops it, as cron libraries do: a job that
// fails each night must not be silent.
func (l *Locker) report(res Result, err error) {
	log := l.log.With(zap.String("job", res.Job), zap.Time("tick", res.Tick))
	if res.Outcome.Started() {
		l.mu.Lock()
		delete(l.refused, res.Job)
		l.mu.Unlock()
		log = log.With(zap.Int("attempt", res.Attempt), zap.Duration("took", res.Took))
	}
	if res.Unconfirmed != nil {
		log.Warn("a run has ended, but etcd has not confirmed the record of that", zap.Stringer("outcome", res.Outcome), zap.NamedError("unconfirmed", res.Unconfirmed))
	}
	switch {
	case err == nil && res.Outcome.Started():
		log.Debug("a job has run")
	case err == nil:
		by := res.Holder
		if res.Paused != nil {
			by = res.Paused.By
		}
		log.Debug("a tick was not started here", zap.Stringer("outcome", res.Outcome), zap.String("by", by))
	case res.Outcome == Lost:
		log.Warn("a run was lost; another may have begun before its function returned", zap.Error(err))
	case res.Outcome.Started():
		log.Warn("a run failed", zap.Error(err))
	case errors.Is(err, ErrClosed) || errors.Is(err, context.Canceled):
		log.Debug("a tick was not started: the caller or the session has ended", zap.Error(err))
	case errors.Is(err, ErrSettings) || errors.Is(err, ErrInvalid):
		if l.refuses(res.Job, err) {
			log.Warn("a job is refused, and does not run here", zap.Error(err))
		}
	default:
		log.Warn("a tick could not be claimed", zap.Error(err))
	}
}

// refuses notes why a job is refused, and returns whether that is new: it is repeated at each
// tick.
func (l *Locker) refuses(job string, err error) bool {
	var settings *SettingsError
	why := err.Error() // names the tick, unless it is one of these
	if errors.As(err, &settings) {
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

// second logs, once for each job, that calls of this process for one tick came twice, where that
// is a mistake: of such calls one starts at most. by is who calls. periodic says that ticks are
// periods, and that by calls once for each fire time of the library's.
func (l *Locker) second(name string, by any, tick time.Time, periodic bool) {
	j := l.job(name)
	j.mu.Lock()
	// A Job that has taken another's place is called after it, but only once.
	same := j.called.Equal(tick) && (periodic || j.caller != by && j.former == by)
	if j.caller != by {
		j.former = j.caller
	}
	j.caller, j.called = by, tick
	same, j.doubled = same && !j.doubled, same || j.doubled
	j.mu.Unlock()
	switch {
	case !same:
	case periodic:
		l.log.Warn("a job was called twice in one period, and starts at most once: give each job a name of its own, and a period no longer than the time between two of its fire times",
			zap.String("job", name), zap.Time("tick", tick))
	default:
		l.log.Warn("two Jobs of this process have one name, and only one of them starts for each tick: give each a name of its own",
			zap.String("job", name), zap.Time("tick", tick))
	}
}
