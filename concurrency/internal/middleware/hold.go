package middleware

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/door"
	"github.com/etcdkit/etcdkit/internal/hook"
)

// releaseWithin is how long the end of an outgoing call waits for etcd to confirm the release of its
// permit. The release then continues in the background.
const releaseWithin = 2 * time.Second

// longHold is how long an outgoing call holds its permit until that is reported. A call that its caller never
// ends holds it for as long as the process lives, and nothing else would show why the limit is full.
const longHold = 5 * time.Minute

// longEvery is how often calls that hold for long are reported at most: some rightly take that long.
const longEvery = time.Hour

// hold returns a call under a permit, whose context has the values that hooks have given the hold.
func (a *Admission) hold(ctx context.Context, key string, p *concurrency.Permit, report func(error)) (Outgoing, error) {
	work, cancel := context.WithCancelCause(hook.With(ctx, p.Context()))
	unlink := context.AfterFunc(p.Context(), func() { cancel(context.Cause(p.Context())) })
	report = a.contained(key, report)
	unwatch := a.long.watch(p, func(calls int) {
		report(fmt.Errorf("outgoing calls that have held their permits for %v: %d, the last one of %q; the bodies of their responses were not closed, or their streams not received to their ends; or they take that long, and MaxHold in Options.Each would bound it (reported once in %v)", longHold, calls, key, longEvery))
	})
	free := sync.OnceFunc(func() {
		unlink() // not after the release: work would end with the permit
		unwatch()
		if err := release(ctx, p); err != nil {
			report(err)
		}
	})
	end := func() {
		defer cancel(nil) // not before the release: work would end with another cause than the permit's
		free()
	}
	forget := context.AfterFunc(ctx, func() {
		<-work.Done() // with the cause of ctx, and not by cancel
		end()
	})
	return Outgoing{concurrency.NewContext(work, p), free, func() { forget(); end() }}, nil
}

// longCalls are the outgoing calls of a middleware that hold for long. It is safe for concurrent use.
type longCalls struct {
	mu       sync.Mutex
	held     map[*concurrency.Permit]struct{}
	reported time.Time // the last time
}

// watch calls report, with how many calls hold for long, when the one of that permit does, unless that was reported less than
// longEvery ago. What it returns ends that.
func (l *longCalls) watch(p *concurrency.Permit, report func(calls int)) (stop func()) {
	stopped := false
	t := time.AfterFunc(longHold, func() {
		l.mu.Lock()
		if stopped || p.Context().Err() != nil { // Err would call hooks
			l.mu.Unlock()
			return
		}
		calls := l.add(p, time.Now())
		l.mu.Unlock()
		if calls > 0 {
			report(calls)
		}
	})
	return func() {
		t.Stop()
		l.mu.Lock()
		defer l.mu.Unlock()
		stopped = true
		delete(l.held, p)
	}
}

// add counts a call. It returns how many hold for long if that is to be reported now, and otherwise 0.
func (l *longCalls) add(p *concurrency.Permit, now time.Time) int {
	if l.held == nil {
		l.held = map[*concurrency.Permit]struct{}{}
	}
	l.held[p] = struct{}{}
	if !l.reported.IsZero() && now.Sub(l.reported) < longEvery {
		return 0
	}
	maps.DeleteFunc(l.held, func(p *concurrency.Permit, _ struct{}) bool { return p.Context().Err() != nil })
	l.reported = now
	return len(l.held)
}

// release releases a permit, and returns an error only if the permit was lost.
func release(ctx context.Context, p *concurrency.Permit) error {
	bounded, stop := context.WithTimeout(ctx, releaseWithin)
	defer stop()
	if err := p.Release(bounded); errors.Is(err, concurrency.ErrLost) {
		return err
	}
	return nil
}

// contained returns what reports the errors of a call that ends in the background, where a panic of ReportError would end
// the process.
func (a *Admission) contained(key string, report func(error)) func(error) {
	return func(err error) {
		door.In(a.Limiter.Key(key)).Contain("ReportError", func() { report(err) })
	}
}
