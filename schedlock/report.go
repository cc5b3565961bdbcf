package schedlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/hook"
	"github.com/etcdkit/etcdkit/observe"
)

// reports are how calls that do not start a run, or whose caller drops their result, are reported: to
// Options.Done, to the session's Logger and to its hooks. It is safe for concurrent use.
type reports struct {
	log   *zap.Logger
	done  func(Result, error) // or nil
	hooks *hook.Set

	mu      sync.Mutex
	refused map[string]string // by name: the reason, already logged, why the last call of a job was refused
}

// callDone calls Options.Done for a call that returns. If the function has panicked, the call does
// not return, and the run calls Options.Done.
func (p *reports) callDone(res *Result, err *error) {
	if p.done != nil && (res.Outcome != NotClaimed || *err != nil) {
		p.done(*res, *err)
	}
}

// result logs the result of a call whose caller drops it, as cron libraries do, so that a job that
// fails each night is noticed.
func (p *reports) result(res Result, err error) {
	log := p.log.With(zap.String("job", res.Job), zap.Time("tick", res.Tick))
	if res.Outcome.Started() {
		p.mu.Lock()
		delete(p.refused, res.Job)
		p.mu.Unlock()
		log = log.With(zap.Int("attempt", res.Attempt), zap.Duration("took", res.Took))
	}
	if res.Unconfirmed != nil {
		p.unconfirmed(res, res.Unconfirmed, nil)
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
		log.Warn("a run failed", zap.Error(err), stackOf(err))
	case errors.Is(err, ErrClosed) || errors.Is(err, context.Canceled) || errors.Is(err, errRemoved):
		log.Debug("a tick was not started: the ctx or the session has ended, or the job was removed", zap.Error(err))
	case errors.Is(err, ErrSettings) || errors.Is(err, ErrInvalid):
		if p.newRefusal(res.Job, err) {
			log.Warn("a job is refused, and does not run in this process", zap.Error(err))
		}
	default:
		log.Warn("a tick could not be claimed", zap.Error(err))
	}
}

// unconfirmed logs that etcd has not confirmed the end of a run, with the error of its function, if that is not logged otherwise.
func (p *reports) unconfirmed(res Result, why, err error) {
	p.log.Warn("the end of a run is not confirmed by etcd", zap.String("job", res.Job), zap.Time("tick", res.Tick), zap.Int("attempt", res.Attempt),
		zap.Duration("took", res.Took), zap.Stringer("outcome", res.Outcome), zap.NamedError("unconfirmed", why), zap.Error(err))
}

// mostRefused bounds the jobs whose refusals are remembered.
const mostRefused = 1000

// newRefusal records why a job is refused, and reports whether the reason is new: it is the same at
// each tick.
func (p *reports) newRefusal(job string, err error) bool {
	why := err.Error() // includes the tick, unless it is one of these
	if settings, ok := errors.AsType[*SettingsError](err); ok {
		why = settings.Error()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refused[job] == why {
		return false
	}
	if len(p.refused) >= mostRefused {
		clear(p.refused) // each is logged once more
	}
	p.refused[job] = why
	return true
}

// refuse reports a claim that is refused without a request to etcd, and returns its error.
func (p *reports) refuse(ctx context.Context, job string, tick time.Time, err error) error {
	if _, span := p.hooks.Start(ctx, observe.Call{Op: observe.Claim, Kind: observe.Job, Name: job, Tick: tick}); span != nil {
		o := observe.Outcome{Err: err, Tick: tick}
		o.Result, o.Reason = endOfClaim(false, NotClaimed, false, err, nil)
		span.End(o)
	}
	return err
}
