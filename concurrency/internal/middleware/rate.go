package middleware

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/door"
)

// rateAlone reports whether requests take a token and no permit.
func (s *Settings) rateAlone() bool { return s.Limiter == nil && s.Rate != nil }

// checkLimits returns an error if there is nothing to limit by, or for a setting that a rate excludes.
func (s *Settings) checkLimits() error {
	switch {
	case s.Rate != nil && s.Outage == Share:
		return errors.New("Options.Outage Share with Options.Rate: a session that has lost its lease has no tokens either, so no request would run under the share; use Closed or Open")
	case s.rateAlone() && s.MaxWaiters > 0:
		return fmt.Errorf("Options.MaxWaiters %d without a limiter: no request waits for a permit", s.MaxWaiters)
	case s.rateAlone() && s.Each:
		return errors.New("Options.Each without a limiter: no request acquires a permit")
	case s.rateAlone():
		return nil
	case s.Limiter == nil:
		return errors.New("the limiter is nil, and so is Options.Rate")
	case reflect.ValueOf(s.Limiter).Kind() == reflect.Pointer && reflect.ValueOf(s.Limiter).IsNil():
		return errors.New("the limiter is nil")
	case s.Limiter == concurrency.Single(nil):
		return errors.New("the semaphore given to concurrency.Single is nil")
	case !s.Keyed:
		return errors.New("Options.Key is nil: it returns the key of a request, such as its tenant, and false for one that is not limited")
	}
	return nil
}

// pass takes a token for a request that takes no permit. In an outage, under Open, the request passes
// without one.
func (a *Admission) pass(ctx context.Context, report func(error)) error {
	err := a.take(ctx, time.Now().Add(a.Wait))
	switch {
	case a.outage.learn(err, door.In(a.Rate)) && a.Outage == Open && ctx.Err() == nil:
		report(fmt.Errorf("passed without a token (Options.Outage is Open): %w", err))
		return nil
	case a.outage.On() && (err == nil || errors.Is(err, concurrency.ErrRateExceeded)):
		a.outage.Answered() // the process had no share when the outage began
	}
	return err
}

// startsWithin is how long a request waits for the first tokens of its process, whatever Options.Wait is: a process
// has none when it begins, although the fleet may be far from its rate.
const startsWithin = time.Second

// take takes a token until by, if there is a rate, and a little longer if the process has just begun. In an
// outage it does not wait for etcd.
func (a *Admission) take(ctx context.Context, by time.Time) error {
	first := time.Now().Add(startsWithin)
	err := a.takeBy(ctx, by)
	if e, ok := errors.AsType[*concurrency.RateExceededError](err); ok && e.Starting && ctx.Err() == nil && !a.outage.On() && time.Now().Before(first) {
		return a.takeBy(ctx, first)
	}
	return err
}

func (a *Admission) takeBy(ctx context.Context, by time.Time) error {
	switch {
	case a.Rate == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	late := !time.Now().Before(by)
	if late || a.outage.On() {
		if err := door.In(a.Rate).Allow(ctx); late || !errors.Is(err, concurrency.ErrRateExceeded) {
			return err
		}
	}
	bounded, cancel := context.WithDeadline(ctx, by)
	defer cancel()
	waits, w := patient(bounded, door.In(a.Rate), a.Wait, a.Patience)
	err := w.over(a.Rate.Wait(waits))
	w.free()
	if bounded.Err() == nil || ctx.Err() != nil {
		return err
	}
	if silent, ok := errors.AsType[*concurrency.UnavailableError](err); ok {
		return waitEnded{err, silent}
	}
	if exceeded, ok := errors.AsType[*concurrency.RateExceededError](err); ok {
		return waitEnded{err, exceeded}
	}
	if errors.Is(err, context.DeadlineExceeded) { // the wait ended before the call began
		return door.In(a.Rate).Allow(ctx)
	}
	return err
}

// waitEnded is the error of a wait that Options.Wait has ended: it does not match
// context.DeadlineExceeded, since the request's own context has not ended.
type waitEnded struct {
	error
	because error
}

func (e waitEnded) Unwrap() error { return e.because }

// afterRate returns when to repeat a request that got no token. The estimate of a call is the time to
// the next token, which is on its way already; but no process has tokens faster than the fleet.
func (a *Admission) afterRate(e *concurrency.RateExceededError) time.Duration {
	estimate := e.RetryAfter
	if estimate > 0 {
		least := min(float64(e.Waiting+1)/e.Rate.PerSecond, latest.Seconds())
		estimate = max(estimate, time.Duration(least*float64(time.Second)))
	}
	return a.retry.after(group{RateExceeded, ""}, estimate, e.Waiting, time.Now())
}
