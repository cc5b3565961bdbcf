package concurrency

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/internal/rate"
)

// rateShares are the shares of a rate that one session holds, with the calls that take their tokens.
// All RateLimiter values of a name on the session use them. loop acquires and returns shares while
// there are calls; between two of its steps no call asks etcd for anything.
type rateShares struct {
	queue  *sessionQueue
	leases func() bool // reports whether the leases of the shares are trusted now; for tests

	mu       sync.Mutex
	bucket   rate.Bucket
	demand   rate.Demand
	division rate.Division // that was read last; zero while it is not known, as after an idle time
	fresh    time.Time     // until when what was read last counts
	held     []*Permit     // oldest first
	since    time.Time     // when the first of them was gained
	asks     []*rateAsk    // requests that wait, oldest first
	calls    []*rateCall   // calls of Wait, oldest first
	timer    *time.Timer   // for the next token, while calls wait
	trouble  error         // why no share can be acquired
	user     *RateLimiter  // that was called last
	running  bool
	wake     chan struct{} // has the loop take a step now
}

// rateCall is one call of Wait.
type rateCall struct {
	limiter *RateLimiter
	done    chan error // has its outcome; one is sent at most
}

// ratesOf returns the shares of a queue. There are as many as rate limiters, so they are kept.
func (s *shared) ratesOf(q *sessionQueue) *rateShares {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rates[q.keys.Range]
	if r == nil {
		r = &rateShares{queue: q, wake: make(chan struct{}, 1)}
		r.leases = r.trusted
		s.rates[q.keys.Range] = r
	}
	return r
}

func (s *rateShares) allow(l *RateLimiter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.use(l); err != nil {
		return err
	}
	if s.division.Shares > 0 {
		if err := l.agrees(s.division.Rate); err != nil {
			return err
		}
	}
	s.demand.Add(time.Now()) // also before the rate was read: the call needs a share
	if len(s.calls) == 0 && s.take() {
		return nil
	}
	return s.refusal()
}

func (s *rateShares) wait(ctx context.Context, l *RateLimiter) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c := &rateCall{l, make(chan error, 1)}
	s.mu.Lock()
	if err := s.use(l); err != nil {
		s.mu.Unlock()
		return err
	}
	s.calls = append(s.calls, c)
	s.serve()
	s.mu.Unlock()
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.calls, c); i >= 0 {
		s.calls = slices.Delete(s.calls, i, i+1)
		s.demand.Add(time.Now()) // as a call of Allow that is refused
		s.arm()
	} else if err := <-c.done; err == nil { // it got its token as ctx ended
		return nil
	}
	if u := s.unavailable(); u != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), u)
	}
	return fmt.Errorf("%w while it waited: %w", ctx.Err(), s.exceeded())
}

// use has the loop run, for a call. s.mu is held, as in all methods below that do not lock it.
func (s *rateShares) use(l *RateLimiter) error {
	if s.queue.sess.Accepting().Err() != nil {
		return ErrClosed
	}
	s.user = l
	if !s.running {
		s.demand.Touch(time.Now())
		if s.running = s.queue.sess.Background(s.loop); !s.running {
			return ErrClosed
		}
	}
	return nil
}

// serve gives tokens to the calls that wait, in their order, and an error to those whose rate is
// not the stored one.
func (s *rateShares) serve() {
	for len(s.calls) > 0 && s.division.Shares > 0 {
		c := s.calls[0]
		err := c.limiter.agrees(s.division.Rate)
		if err == nil && !s.take() {
			break
		}
		if err == nil {
			s.demand.Add(time.Now())
		}
		s.calls = s.calls[1:]
		c.done <- err
	}
	s.arm()
}

// fail ends all calls that wait.
func (s *rateShares) fail(err error) {
	for _, c := range s.calls {
		c.done <- err
	}
	s.calls = nil
	s.arm()
}

// arm sets the timer for the next token.
func (s *rateShares) arm() {
	d, ok := s.bucket.Next(time.Now())
	switch {
	case len(s.calls) == 0 || !ok:
		if s.timer != nil {
			s.timer.Stop()
		}
	case s.timer == nil:
		s.timer = time.AfterFunc(d, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.serve()
		})
	default:
		s.timer.Reset(d)
	}
}

// take takes a token. The clock is read before trust is checked: a pause of the process in between
// makes the token void, and no token counts for a moment after the end of trust.
func (s *rateShares) take() bool {
	now := time.Now()
	return s.bucket.Take(now, now.Before(s.fresh) && s.leases())
}

// trusted reports whether all shares are on leases that may be trusted now.
func (s *rateShares) trusted() bool {
	for i, p := range s.held {
		if (i == 0 || p.epoch != s.held[i-1].epoch) && !p.epoch.Trusted() {
			return false
		}
	}
	return true
}

// hold replaces the shares. What is left out is void from then on, and may be returned.
func (s *rateShares) hold(held []*Permit) {
	if len(s.held) == 0 {
		s.since = time.Now()
	}
	s.held = held
	s.bucket.Set(time.Now(), int64(len(held)), s.division)
}

// drop forgets a share that was lost.
func (s *rateShares) drop(p *Permit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.held, p); i >= 0 {
		s.hold(slices.Delete(s.held, i, i+1))
		s.bucket.Void(time.Now())
		s.arm()
		s.prompt()
	}
}

// prompt has the loop take a step now. s.mu need not be held.
func (s *rateShares) prompt() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// refusal is the error of a call that finds no token.
func (s *rateShares) refusal() error {
	if u := s.unavailable(); u != nil {
		return u
	}
	if s.trouble != nil && len(s.held) == 0 {
		return s.trouble
	}
	return s.exceeded()
}

// unavailable returns an *UnavailableError if etcd keeps the process from acquiring a share.
func (s *rateShares) unavailable() error {
	if u := s.queue.unavailable(); u != nil && len(s.held) == 0 {
		return u
	}
	return nil
}

func (s *rateShares) exceeded() *RateExceededError {
	e := &RateExceededError{Name: s.queue.name, Rate: publicRate(s.division.Rate), Waiting: len(s.calls)}
	if d, ok := s.bucket.Next(time.Now()); ok {
		e.RetryAfter = s.division.Behind(d, len(s.calls), len(s.held))
	}
	return e
}
