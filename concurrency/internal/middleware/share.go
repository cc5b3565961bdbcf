package middleware

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/door"
	"github.com/etcdkit/etcdkit/internal/outage"
	"github.com/etcdkit/etcdkit/internal/share"
)

// errDraining is the error of a request that could not begin after an outage.
var errDraining = errors.New("work that began under the share of this process, in an outage, has no permit yet (Options.Outage is Share)")

// turn waits, after an outage, until all work under the share has a permit or has ended. It returns
// the end of the request's wait, and the options of a call for a permit with what is left of Wait.
// until is zero for the first call of a request.
func (a *Admission) turn(ctx context.Context, key string, until time.Time) (by time.Time, opts []concurrency.AcquireOption, err error) {
	v, _ := a.share.Enter(0, false)
	if until.IsZero() {
		until = time.Now().Add(a.Wait)
		if v != share.Drain {
			return until, a.opts, nil
		}
	}
	if v == share.Drain {
		a.outage.Answered() // by a new lease
		if err := a.drained(ctx, key, until); err != nil {
			return until, nil, err
		}
	}
	return until, append(slices.Clip(a.opts), concurrency.Wait(max(time.Until(until), time.Millisecond))), nil
}

// drained waits until work under a permit may begin.
func (a *Admission) drained(ctx context.Context, key string, by time.Time) error {
	closing := door.In(a.Limiter.Key(key)).Closing(ctx)
	for {
		wait := a.share.Draining()
		if wait == nil {
			return nil
		}
		left := time.Until(by)
		if left <= 0 {
			return errDraining
		}
		t := time.NewTimer(left)
		select {
		case <-wait:
		case <-t.C:
		case <-closing:
			t.Stop()
			return fmt.Errorf("acquire %q: %w", key, concurrency.ErrClosed)
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		}
		t.Stop()
	}
}

// granted returns errDraining if no work may begin under a permit that etcd has just granted: it was
// asked for before or in the outage, and work under the share has none yet. The request releases it,
// and asks again after that work: a permit that waited for that could be the one that it waits for.
//
// In an outage, a permit may have passed from another call of the process, without etcd (concurrency.Handover).
func (a *Admission) granted(of limit) error {
	a.outage.AnsweredAt(of.Answered())
	if a.share != nil && a.share.Draining() != nil {
		return errDraining
	}
	return nil
}

// drains reports whether a request asks again after that error.
func drains(err error, by time.Time) bool {
	return errors.Is(err, errDraining) && time.Now().Before(by)
}

// enter begins a request under the share, or returns why it cannot. free has it count no more, and returns an error
// if it has had a permit in the end and has lost it; cancel ends its context.
func (a *Admission) enter(ctx context.Context, key string, each []concurrency.AcquireOption, weight int64) (_ context.Context, free func() error, cancel func(), full error) {
	switch v, f := a.share.Enter(weight, true); v {
	case share.Run:
	case share.Refuse:
		return nil, nil, nil, fmt.Errorf("the share of this process is in use: %d of a limit of %d for %d sessions, %d under permits from before and %d without", f.Size(), f.Limit, f.Sessions, f.Permits, f.Running)
	default:
		return nil, nil, nil, errors.New("the session's lease is not lost, so its share is not used")
	}
	work, end := context.WithCancelCause(ctx)
	asking, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &stay{a: a, weight: weight, lost: make(chan struct{}), cancel: end, stop: stop}
	v := &visit{Context: work, stay: s}
	go s.ask(asking, v, key, each)
	return v, func() error { return s.free(ctx, v) }, func() { end(nil) }, nil
}

// stay is the time that a request spends under a share: until it has a permit or has ended. So work
// that began in an outage is in the queue as soon as etcd answers, before any request that comes
// then.
type stay struct {
	a      *Admission
	weight int64
	lost   chan struct{} // closed when its permit was lost
	cancel context.CancelCauseFunc
	stop   context.CancelFunc

	mu    sync.Mutex
	ended bool // it has ended, or has a permit

	freed atomic.Bool // the end of its permit does not end the work
}

// leave ends the stay, and reports whether it had not ended before.
func (s *stay) leave() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.ended = true
	s.a.share.Leave(s.weight)
	return true
}

// counts reports whether the request runs without a permit, or has one that has not ended.
func (s *stay) counts(v *visit) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := v.permit.Load()
	return !s.ended || p != nil && p.Err() == nil
}

// ask asks for the permit of work that runs already. If that is refused, because too many wait
// perhaps, it asks again: until it has a permit, the process begins no other work under one.
func (s *stay) ask(ctx context.Context, v *visit, key string, each []concurrency.AcquireOption) {
	opts := append(slices.Clip(each), concurrency.Wait(maxTime))
	p, err := s.a.Limiter.Key(key).Acquire(ctx, opts...)
	for err != nil {
		switch {
		case errors.Is(err, concurrency.ErrClosed), errors.Is(err, concurrency.ErrLost), errors.Is(err, concurrency.ErrReleased):
			return // the work remains under the share until its end
		}
		select {
		case <-time.After(outage.Every):
		case <-ctx.Done():
			return
		}
		p, err = s.a.Limiter.Key(key).Acquire(ctx, opts...)
	}
	door.In(s.a.Limiter.Key(key)).Contain("OnOutage", s.a.outage.Answered)
	v.permit.Store(p)
	if !s.leave() { // the work has ended
		_ = release(context.WithoutCancel(ctx), p)
		return
	}
	context.AfterFunc(p.Context(), func() {
		if !s.freed.Load() {
			s.cancel(context.Cause(p.Context()))
		}
		close(s.lost)
	})
}

// free has the work count no more.
func (s *stay) free(ctx context.Context, v *visit) error {
	s.freed.Store(true)
	s.stop()
	if s.leave() {
		return nil
	}
	return release(ctx, v.permit.Load())
}
