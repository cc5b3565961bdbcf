// Package middleware is the half of a limiting middleware that is the same for every transport: it
// runs requests under permits, follows outages of etcd, and says for which reason a request is
// refused and when to repeat it. The packages limithttp and limitgrpc translate between it and
// their transport.
package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/door"
	"github.com/etcdkit/etcdkit/internal/outage"
	"github.com/etcdkit/etcdkit/internal/share"
)

// maxTime is the greatest Wait and Patience.
const maxTime = 24 * time.Hour

// Outage is what happens to requests while etcd does not answer.
type Outage int

// The outage policies, as the packages of the transports number them.
const (
	Closed Outage = iota
	Open
	Share
)

// Settings are the options that the middlewares of all transports have.
type Settings struct {
	Limiter    concurrency.Limiter      // nil if requests take a token of Rate and no permit
	Rate       *concurrency.RateLimiter // nil if there is none
	Keyed      bool                     // Options.Key is set
	Each       bool                     // Options.Each is set
	Wait       time.Duration
	MaxWaiters int
	Outage     Outage
	Patience   time.Duration
	Enabled    func() bool
	OnOutage   func(error)
	// Do runs a function under a permit; nil means Semaphore.Do. Benchmarks set it.
	Do func(*concurrency.Semaphore, context.Context, func(context.Context, *concurrency.Permit) error, ...concurrency.AcquireOption) error
	// Check returns the weight of a call, or what is wrong with it; nil means that of the semaphore. Tests set it.
	Check func(context.Context, *concurrency.Semaphore, []concurrency.AcquireOption) (weight int64, err error)
}

// check fills in defaults, and returns an error for a setting that is out of range.
func (s *Settings) check() error {
	s.Patience = cmp.Or(s.Patience, 10*time.Second)
	if s.Do == nil {
		s.Do = (*concurrency.Semaphore).Do
	}
	if s.Check == nil {
		s.Check = func(ctx context.Context, sem *concurrency.Semaphore, opts []concurrency.AcquireOption) (int64, error) {
			return door.In(sem).Weight(ctx, opts)
		}
	}
	switch {
	case s.Outage < Closed || s.Outage > Share:
		return fmt.Errorf("Options.Outage %d is neither Closed nor Open nor Share", s.Outage)
	case s.Wait < 0 || s.Wait > maxTime:
		return fmt.Errorf("Options.Wait %v is not between 0 and %v", s.Wait, maxTime)
	case s.Patience < time.Millisecond || s.Patience > maxTime:
		return fmt.Errorf("Options.Patience %v is not between 1ms and %v", s.Patience, maxTime)
	case s.MaxWaiters < 0:
		return fmt.Errorf("Options.MaxWaiters %d is negative", s.MaxWaiters)
	case s.MaxWaiters > 0 && s.Wait == 0:
		return fmt.Errorf("Options.MaxWaiters %d without Options.Wait: no request waits", s.MaxWaiters)
	}
	return s.checkLimits()
}

// Admission runs requests under the permits of a limiter, with the tokens of a rate, or both. It is
// safe for concurrent use.
type Admission struct {
	Settings
	share  *share.Share // nil unless the policy is Share
	opts   []concurrency.AcquireOption
	probe  []concurrency.AcquireOption // of a request that asks whether an outage has ended
	outage detector
	retry  retries
	long   longCalls
}

// New returns an Admission. Its error is concurrency.ErrInvalid, with what was attempted.
func New(attempted string, s Settings) (*Admission, error) {
	if err := s.check(); err != nil {
		return nil, Invalid(attempted, err)
	}
	a := &Admission{Settings: s}
	a.opts = []concurrency.AcquireOption{concurrency.Wait(s.Wait)}
	if s.MaxWaiters > 0 {
		a.opts = append(a.opts, concurrency.MaxWaiters(s.MaxWaiters))
	}
	a.probe = []concurrency.AcquireOption{concurrency.Wait(min(cmp.Or(s.Wait, outage.Every), outage.Every))}
	a.outage = newDetector(s)
	if s.Outage == Share {
		var err error
		if a.share, err = door.In(whole(s.Limiter)).Divide(); err != nil {
			return nil, Invalid(attempted, fmt.Errorf("Options.Outage: %w", err))
		}
	}
	a.Limiter = ours(s.Limiter)
	return a, nil
}

// Invalid returns a concurrency.ErrInvalid: what was attempted, and the reason.
func Invalid(attempted string, reason error) error {
	return invalid{fmt.Errorf("%s: %w", attempted, reason)}
}

type invalid struct{ error }

func (invalid) Is(target error) bool { return target == concurrency.ErrInvalid }

// Disabled reports whether the limit is switched off.
func (a *Admission) Disabled() bool { return a.Enabled != nil && !a.Enabled() }

// Run calls fn under a permit of the key and releases it, even if fn panics. The options in each
// count less than the middleware's own. Without a permit fn is called only in an outage under the
// policies Open and Share, which is reported. ran says whether fn was called; then err is nil or says
// that the permit was lost before fn returned. If there is a rate, fn is called after a token of it
// was taken: under the permit, so that the tokens count what begins. If fn was not called, Run returns an error of the limiter, such as
// concurrency.ErrFull.
func (a *Admission) Run(ctx context.Context, key string, each []concurrency.AcquireOption, report func(error), fn func(context.Context)) (ran bool, err error) {
	if a.rateAlone() {
		if err := a.pass(ctx, report); err != nil {
			return false, err
		}
		fn(ctx)
		return true, nil
	}
	var opts []concurrency.AcquireOption
	var by time.Time
	for again := true; again; again = drains(err, by) {
		if opts, by, err = a.before(ctx, key, each, by); err != nil {
			continue
		}
		until := by // a copy, since the closure would move by to the heap
		sem := a.Limiter.Key(key)
		of := door.In(sem)
		waits, wait := patient(ctx, of, a.Wait, a.Patience)
		err = a.Do(sem, waits, func(ctx context.Context, _ *concurrency.Permit) error {
			if err := wait.over(a.granted(of)); err != nil {
				return err
			}
			if err := a.take(ctx, until); err != nil {
				return err
			}
			ran = true
			fn(ctx)
			return nil
		}, opts...)
		wait.free()
		if ran {
			return true, err
		}
		err = wait.over(err)
	}
	work, free, cancel, err := a.without(ctx, key, each, by, err, report)
	if err != nil {
		return false, err
	}
	defer func() {
		cancel()
		err = free()
	}()
	fn(work)
	return true, nil
}

// before returns the options of a call for a permit, or the error of a call that is not made. until is
// when the request's wait ends; it is zero for the first call of a request, and set then. by is that
// time.
func (a *Admission) before(ctx context.Context, key string, each []concurrency.AcquireOption, until time.Time) (opts []concurrency.AcquireOption, by time.Time, err error) {
	if key == "" {
		return nil, until, Invalid("acquire", errors.New("the key of the request is empty (Options.Key)"))
	}
	opts = a.opts
	if a.Rate != nil { // its requests call once: there is no share to drain
		by = time.Now().Add(a.Wait)
	}
	if a.share != nil {
		if stays(ctx, a.share) {
			return nil, until, Invalid(fmt.Sprintf("acquire %q", key), errors.New("the context has a share of this limiter already: two calls that hold one permit each could wait for each other"))
		}
		if by, opts, err = a.turn(ctx, key, until); err != nil {
			return nil, by, err
		}
	}
	if a.outage.On() {
		if door.In(a.Limiter.Key(key)).Closed(ctx) {
			return nil, by, fmt.Errorf("acquire %q: %w", key, concurrency.ErrClosed)
		}
		switch turn, err := a.outage.Turn(time.Now(), time.Time{}); turn {
		case outage.Refuse:
			return nil, by, err
		case outage.Probe:
			opts = a.probe
		}
	}
	if len(each) > 0 {
		opts = append(slices.Clip(each), opts...)
	}
	return opts, by, nil
}

// without learns from the error of a request without a permit. If the request runs nevertheless, by
// the policy, it returns the context of its work; free, which ends what it counts and returns whether a permit was
// lost that it got meanwhile; and cancel, which ends the context. Such a request takes a token as well, as long as the process has some
// without etcd.
func (a *Admission) without(ctx context.Context, key string, each []concurrency.AcquireOption, by time.Time, err error, report func(error)) (work context.Context, free func() error, cancel func(), _ error) {
	if !a.outage.learn(err, door.In(a.Limiter.Key(key))) || ctx.Err() != nil {
		return nil, nil, nil, err
	}
	weight, bad := a.Check(ctx, a.Limiter.Key(key), slices.Concat(each, a.opts))
	if bad != nil {
		return nil, nil, nil, bad
	}
	switch a.Outage {
	case Open:
		if err := a.take(ctx, by); err != nil && !errors.Is(err, concurrency.ErrUnavailable) {
			return nil, nil, nil, err
		}
		report(fmt.Errorf("passed without a permit (Options.Outage is Open): %w", err))
		return &visit{Context: ctx}, func() error { return nil }, func() {}, nil
	case Share:
		work, free, cancel, full := a.enter(ctx, key, each, weight)
		if full != nil {
			return nil, nil, nil, fmt.Errorf("%w: %w", full, err)
		}
		reported := false
		defer func() {
			if !reported { // it has panicked
				cancel()
				_ = free()
			}
		}()
		report(fmt.Errorf("passed without a permit (Options.Outage is Share): %w", err))
		reported = true
		return work, free, cancel, nil
	}
	return nil, nil, nil, err
}

// Outgoing is a call that ends later than the function that has admitted it.
type Outgoing struct {
	Context context.Context // of the call
	// Release releases the permit, or the share, of a call that does not count any more. Context continues, for the rest of
	// the call, such as trailers.
	Release func()
	// End is Release, and ends Context. Both may be called more than once. The end of the ctx that was given to Acquire is
	// the call's as well.
	End func()
}

// Acquire is Run for a call that ends later. It returns an error of the limiter, such as concurrency.ErrFull.
func (a *Admission) Acquire(ctx context.Context, key string, each []concurrency.AcquireOption, report func(error)) (Outgoing, error) {
	if a.rateAlone() {
		if err := a.pass(ctx, report); err != nil {
			return Outgoing{}, err
		}
		return Outgoing{ctx, func() {}, func() {}}, nil
	}
	var opts []concurrency.AcquireOption
	var by time.Time
	var err error
	for again := true; again; again = drains(err, by) {
		if opts, by, err = a.before(ctx, key, each, by); err != nil {
			continue
		}
		var p *concurrency.Permit
		sem := a.Limiter.Key(key)
		of := door.In(sem)
		waits, wait := patient(ctx, of, a.Wait, a.Patience)
		p, err = sem.Acquire(waits, opts...)
		err = wait.over(err)
		wait.free()
		if p == nil {
			continue
		}
		if err = a.begin(ctx, of, p, by); err == nil {
			return a.hold(ctx, key, p, report)
		}
	}
	work, free, cancel, err := a.without(ctx, key, each, by, err, report)
	if err != nil {
		return Outgoing{}, err
	}
	lost := a.contained(key, report)
	release := sync.OnceFunc(func() {
		if err := free(); err != nil {
			lost(err)
		}
	})
	end := func() {
		cancel()
		release()
	}
	forget := context.AfterFunc(ctx, end)
	return Outgoing{work, release, func() { forget(); end() }}, nil
}

// begin releases a permit under which no work may begin yet, or that gets no token, and if OnOutage
// panics.
func (a *Admission) begin(ctx context.Context, of limit, p *concurrency.Permit, by time.Time) (err error) {
	begins := false
	defer func() {
		if !begins {
			_ = release(ctx, p)
		}
	}()
	if err = a.granted(of); err == nil {
		err = a.take(ctx, by)
	}
	if err == nil {
		err = p.Err()
	}
	begins = err == nil
	return err
}
