package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/rate"
	"github.com/etcdkit/etcdkit/internal/record"
)

const (
	// stepEvery is how often a process with shares, or with calls that wait, reads the queue of
	// shares and decides how many to ask for or to return.
	stepEvery = 500 * time.Millisecond
	// keepIdle is how long a process keeps its shares without a call. Meanwhile it reads the queue,
	// so others that need the shares get them.
	keepIdle = time.Minute
)

// request is one for a share.
type request struct {
	cancel    context.CancelFunc
	withdrawn bool
}

// loop takes steps until the process is idle and has no shares, or the session is closed.
func (s *Shares) loop() {
	closing := s.Session.Accepting()
	t := time.NewTicker(stepEvery)
	defer t.Stop()
	defer s.report()
	for s.step(closing) {
		s.settle(closing)
		s.report()
		select {
		case <-t.C:
		case <-s.wake:
		case <-closing.Done():
		}
	}
}

// step reads the queue and does what rate.Next decides. It returns false if the loop is to end.
func (s *Shares) step(closing context.Context) bool {
	read := time.Now()
	v, err := s.Queue.Read(closing)
	var d rate.Division
	if err == nil {
		d, err = DivisionOf(v)
	}
	if errors.Is(err, limit.ErrNone) {
		if err = s.store(closing); err == nil {
			s.prompt()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if closing.Err() != nil {
		s.end()
		return false
	}
	if s.trouble = s.Session.Explain(err); err != nil && (s.lacks() || !time.Now().Before(s.fresh)) {
		s.fail(s.trouble)
	}
	if d.Shares > 0 {
		s.learn(d, v, read)
	}
	s.serve()
	s.refuseLate(0)
	now := time.Now()
	o := rate.Own{
		Held: int64(len(s.held)), Asked: int64(len(s.asks)), TurnOver: now.Sub(s.since) >= s.division.Turn(),
		Idle: len(s.calls) == 0 && s.demand.Idle(now) >= keepIdle,
	}
	if o.Idle && o.Held+o.Asked == 0 {
		s.running, s.division = false, rate.Division{} // no step reads it from now on
		return false
	}
	if d.Shares > 0 {
		o.Need = d.Need(s.demand.PerSecond(now), len(s.calls), o.Held)
		s.do(rate.Next(rate.Survey(leasesOf(v), int64(s.Session.Lease()), d.Shares), o), d)
	}
	return true
}

// store stores the rate of the program that was called last, if none is stored.
func (s *Shares) store(ctx context.Context) error {
	s.mu.Lock()
	r := s.user.Configured()
	s.mu.Unlock()
	_, err := s.Queue.Limit.Init(ctx, rate.Divide(r).Shares, record.Rate(r))
	return err
}

// learn takes over the rate that was read, and gives the shares back that are not among the first ones
// of the queue: after the rate was lowered there may be fewer. What was granted after the read
// began is not judged by it.
func (s *Shares) learn(d rate.Division, v mirror.View, read time.Time) {
	s.division, s.fresh = d, read.Add(s.Session.TTL())
	if !read.Before(s.changed) {
		s.changed = time.Time{}
	}
	first := map[int64]bool{}
	for i, r := range v.Requests() {
		first[r.Create] = int64(i) < d.Shares
	}
	var valid, others []*Share
	for _, p := range s.held {
		if first[p.Token] || p.Since.After(read) {
			valid = append(valid, p)
		} else {
			others = append(others, p)
		}
	}
	s.hold(valid)
	if len(others) > 0 {
		s.bucket.Void(time.Now())
	}
	s.give(others, nil)
}

// do takes one step.
func (s *Shares) do(next rate.Step, d rate.Division) {
	if n := next.Return; n > 0 {
		keep := len(s.held) - int(n)
		back := s.held[keep:]
		var left *leftover
		if keep == 0 {
			left = s.leaving(time.Now())
		}
		s.hold(s.held[:keep:keep])
		s.give(back, left)
	}
	for _, a := range s.asks[len(s.asks)-int(next.Withdraw):] {
		a.withdrawn = true
		a.cancel()
	}
	s.asks = s.asks[:len(s.asks)-int(next.Withdraw)]
	for range next.Ask {
		s.ask(d)
	}
	s.arm()
}

// ask asks for one share, in the background.
func (s *Shares) ask(d rate.Division) {
	ctx, cancel := context.WithCancel(s.Session.Accepting())
	a := &request{cancel: cancel}
	s.asks = append(s.asks, a)
	s.Session.Callback(func() { // hooks learn of it
		var p *Share
		err := errExited
		defer func() {
			cancel()
			s.answered(a, p, err)
		}()
		p, err = s.Acquire(ctx, d)
	})
}

var errExited = errors.New("a hook has exited the goroutine that acquires a share (runtime.Goexit)")

// answered takes a share that was granted, unless its request was withdrawn meanwhile.
func (s *Shares) answered(a *request, p *Share, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.asks {
		if s.asks[i] == a {
			s.asks = append(s.asks[:i:i], s.asks[i+1:]...)
			break
		}
	}
	switch {
	case err == nil && (a.withdrawn || s.Session.Accepting().Err() != nil):
		s.give([]*Share{p}, nil)
	case err == nil:
		s.hold(append(s.held, p))
		context.AfterFunc(p.Permit.Context(), func() { s.drop(p) })
		s.serve()
		if len(s.asks) == 0 && len(s.calls) > 0 {
			s.prompt() // it may need more
		}
	case !a.withdrawn && !errors.Is(err, engine.ErrClosed) && s.Session.Accepting().Err() == nil: // else end has the error
		s.trouble = err
		if len(s.held) == 0 {
			s.fail(err)
		}
	}
}

// give returns shares that hold has left out, in the background, and stores before that what they leave. A
// release that etcd does not confirm ends with the lease.
func (s *Shares) give(back []*Share, left *leftover) {
	for _, p := range back {
		s.Session.Callback(func() { // hooks learn of it
			ctx, cancel := context.WithTimeout(context.Background(), s.Session.ReleaseTimeout())
			defer cancel()
			left.save(ctx)
			_ = p.Permit.Release(ctx)
		})
	}
}

// end returns all shares and ends all calls: the session is closing.
func (s *Shares) end() {
	back, left := s.held, s.leaving(time.Now())
	s.hold(nil)
	s.give(back, left)
	s.fail(engine.ErrClosed)
	s.running = false
}

// DivisionOf returns the rate that a view of the queue shows, with the number of its shares.
func DivisionOf(v mirror.View) (rate.Division, error) {
	stored := v.Limits.Own
	if stored.Rev == 0 {
		return rate.Division{}, limit.ErrNone
	}
	d := rate.Division{Rate: rate.Rate(stored.Rate), Shares: stored.Limit.Limit}
	if stored.Damaged {
		return rate.Division{}, limit.Unreadable(stored)
	}
	if err := d.Rate.Check(); err != nil || d.Shares < 1 || d.Shares > d.Burst {
		return rate.Division{}, fmt.Errorf("%w: it has no rate", limit.ErrUnreadable)
	}
	return d, nil
}

func leasesOf(v mirror.View) (leases []int64) {
	for _, r := range v.Requests() {
		leases = append(leases, r.Slot.Lease)
	}
	return leases
}
