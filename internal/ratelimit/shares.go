package ratelimit

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/queue"
	"github.com/etcdkit/etcdkit/internal/rate"
)

// Options are what Shares are made of.
type Options struct {
	Session *engine.Session
	Queue   *queue.Queue // of the shares
	// Acquire acquires a share, and stores the division if none is stored.
	Acquire func(ctx context.Context, d rate.Division) (*Share, error)
}

// Share is one share that the session holds.
type Share struct {
	Permit interface {
		Context() context.Context
		Release(ctx context.Context) error
	}
	Epoch *engine.Epoch
	Token int64
	Since time.Time
}

// User is a rate limiter of the program, by which calls use the shares.
type User interface {
	// Configured returns its rate, which is stored if none is.
	Configured() rate.Rate
	// Accepts returns an error if it may not be used under the rate that is stored.
	Accepts(stored rate.Rate) error
}

// Shares are the shares of a rate that one session holds, with the calls that take their tokens.
// All users of a name on the session use them. loop acquires and returns shares while
// there are calls; between two of its steps no call asks etcd for anything.
type Shares struct {
	Options
	leases func() bool // reports whether the leases of the shares are trusted now; for tests
	tally  tally       // of calls, which are reported after each step

	mu       sync.Mutex
	bucket   rate.Bucket
	demand   rate.Demand
	division rate.Division // that was read last; zero while it is not known, as after an idle time
	revision int64         // of its record
	fresh    time.Time     // until when what was read last counts
	changed  time.Time     // when this process has stored another rate, if it has not read it yet
	tokens   known         // of a slow rate
	begun    time.Time     // when the loop began, also after an idle time
	served   bool          // a token was taken since then
	held     []*Share      // whose tokens count, oldest first
	granted  []*Share      // that the last read of the queue does not show among the shares, oldest first
	since    time.Time     // when the first of them was gained
	asks     []*request    // requests that wait, oldest first
	calls    []*call       // calls of Wait, oldest first
	timer    *time.Timer   // for the next token, while calls wait
	trouble  trouble
	user     User // that was called last
	running  bool
	wake     chan struct{} // has the loop take a step now
}

// starting is for how long a process counts as one that begins. Its first token comes within a second, if there is one.
const starting = 2 * time.Second

// call is one call of Wait.
type call struct {
	user     User
	deadline time.Time  // of its ctx, or zero
	done     chan error // has its outcome; one is sent at most
}

// New returns the shares of a queue, of which the session holds none.
func New(o Options) *Shares {
	s := &Shares{Options: o, wake: make(chan struct{}, 1)}
	s.leases = s.trusted
	return s
}

// Allow takes a token if there is one now. It does not wait, and not look whether ctx has ended.
func (s *Shares) Allow(ctx context.Context, u User) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.use(ctx, u); err != nil {
		return err
	}
	if s.division.Shares > 0 {
		if err := u.Accepts(s.division.Rate); err != nil {
			return err
		}
	}
	s.demand.Add(time.Now()) // also before the rate was read: the call needs a share
	if len(s.calls) == 0 && s.take() {
		return nil
	}
	return s.noToken()
}

// Wait waits for a token until ctx ends.
func (s *Shares) Wait(ctx context.Context, u User) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c := &call{user: u, done: make(chan error, 1)}
	c.deadline, _ = ctx.Deadline()
	s.mu.Lock()
	if err := s.use(ctx, u); err != nil {
		s.mu.Unlock()
		return err
	}
	s.calls = append(s.calls, c)
	s.serve()
	if n := len(s.calls); n > 0 && s.calls[n-1] == c {
		s.refuseLate(n - 1)
	}
	s.mu.Unlock()
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
	case <-engine.Accepts(ctx, s.Session).Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.calls, c); i >= 0 {
		s.calls = slices.Delete(s.calls, i, i+1)
		s.count(time.Now()) // as a call of Allow that is refused
		s.arm()
	} else if err := <-c.done; err == nil { // it got its token as ctx ended
		return nil
	}
	if ctx.Err() == nil {
		return engine.ErrClosed
	}
	return &WaitEnd{ctx.Err(), s.noToken()}
}

// use has the loop run, for a call. s.mu is held, as in all methods below that do not lock it.
func (s *Shares) use(ctx context.Context, u User) error {
	if engine.Refuses(ctx, s.Session) {
		return engine.ErrClosed
	}
	s.user = u
	if !s.running {
		s.begun, s.served, s.trouble = time.Now(), false, trouble{}
		s.demand.Touch(s.begun)
		if s.running = s.Session.Background(s.loop); !s.running {
			return engine.ErrClosed
		}
	}
	return nil
}

// serve gives tokens to the calls that wait, in their order, and an error to those whose rate is
// not the stored one.
func (s *Shares) serve() {
	waited := len(s.calls) > 0
	for len(s.calls) > 0 && s.division.Shares > 0 {
		c := s.calls[0]
		err := c.user.Accepts(s.division.Rate)
		if err == nil && !s.take() {
			break
		}
		if err == nil {
			s.count(time.Now())
		}
		s.calls = s.calls[1:]
		c.done <- err
	}
	if waited && len(s.calls) == 0 && s.division.Slow() {
		s.prompt() // others may wait for the share
	}
	s.arm()
}

// count counts a call of Wait that has ended. Under a slow rate a process needs the share while calls wait, and no
// longer.
func (s *Shares) count(now time.Time) {
	if s.division.Slow() {
		s.demand.Touch(now)
	} else {
		s.demand.Add(now)
	}
}

// refuseLate ends the calls, from that one on, whose turn comes after their deadline even if this process had the
// whole rate. That counts the calls that wait before it: if one of them ends without a token, or the rate is raised, the
// turn would have come earlier; its caller may call again.
func (s *Shares) refuseLate(from int) {
	now := time.Now()
	if s.division.Shares == 0 || !s.changed.IsZero() || s.division.Slow() && s.tokens.of == nil { // when there are tokens is not known
		return
	}
	if s.refusal(now) != nil { // the next step ends the calls that it keeps from tokens
		return
	}
	left := s.bucket.Left(now)
	stay := s.calls[:from:from]
	for _, c := range s.calls[from:] {
		turn := s.division.Earliest(float64(len(stay)+1) - left)
		if c.deadline.IsZero() || !now.Add(turn).After(c.deadline) {
			stay = append(stay, c)
			continue
		}
		e := s.exceeded(len(stay))
		e.RetryAfter, e.Late, e.Turn, e.Left = max(e.RetryAfter, turn), true, turn, c.deadline.Sub(now)
		c.done <- e
		s.count(now)
	}
	if len(stay) < len(s.calls) {
		s.calls = stay
		s.arm()
	}
}

// fail ends all calls that wait.
func (s *Shares) fail(err error) {
	for _, c := range s.calls {
		c.done <- err
	}
	s.calls = nil
	s.arm()
}

// arm sets the timer for the next token.
func (s *Shares) arm() {
	d, ok := s.bucket.Next(time.Now())
	switch {
	case len(s.calls) == 0 || !ok || !s.takes(time.Now()):
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
func (s *Shares) take() bool {
	now := time.Now()
	if !s.takes(now) || !s.bucket.Take(now, now.Before(s.fresh) && s.leases()) {
		return false
	}
	s.served = true
	return true
}

// trusted reports whether all shares are on leases that may be trusted now.
func (s *Shares) trusted() bool {
	for i, p := range s.held {
		if (i == 0 || p.Epoch != s.held[i-1].Epoch) && !p.Epoch.Trusted() {
			return false
		}
	}
	return true
}

// setHeld replaces the shares. What is left out is void from then on, and may be returned.
func (s *Shares) setHeld(held []*Share) {
	if len(s.held) == 0 {
		s.since = time.Now()
	}
	if len(held) == 0 {
		s.tokens = known{}
	}
	s.held = held
	s.bucket.Set(time.Now(), int64(len(held)), s.division)
}

// drop forgets a share that was lost.
func (s *Shares) drop(p *Share) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.granted, p); i >= 0 {
		s.granted = slices.Delete(s.granted, i, i+1)
		s.prompt()
	} else if i := slices.Index(s.held, p); i >= 0 {
		s.setHeld(slices.Delete(s.held, i, i+1))
		s.bucket.Void(time.Now())
		s.arm()
		s.prompt()
	}
}

// InForce returns the rate that was read last, or else another one.
func (s *Shares) InForce(otherwise rate.Rate) rate.Rate {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.division.Shares == 0 {
		return otherwise
	}
	return s.division.Rate
}

// Replaced has the loop read the rate, which this process has just stored.
func (s *Shares) Replaced(ctx context.Context) {
	s.mu.Lock()
	s.changed = time.Now()
	s.mu.Unlock()
	s.prompt()
	s.remeasure(ctx)
}

// prompt has the loop take a step now. s.mu need not be held.
func (s *Shares) prompt() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// noToken is the error of a call that finds no token.
func (s *Shares) noToken() error {
	if out := s.unavailable(); out != nil {
		return out
	}
	if err := s.refusal(time.Now()); err != nil {
		return err
	}
	return s.exceeded(len(s.calls))
}

// refusal returns why the process may take no token now, or nil.
func (s *Shares) refusal(now time.Time) error {
	switch t := s.trouble; {
	case t.read != nil && s.unread(now):
		return t.read
	case t.tokens != nil && !s.takes(now):
		return t.tokens
	case len(s.held) == 0:
		return t.acquire
	}
	return nil
}

// unread reports whether the process has to read the queue, or the tokens of a slow rate, before it may take one.
func (s *Shares) unread(now time.Time) bool {
	return len(s.held) == 0 || s.division.Slow() && s.tokens.of == nil || !now.Before(s.fresh)
}

// unavailable returns a *queue.Outage if the process may take no token because etcd does not answer.
func (s *Shares) unavailable() error {
	if o, ok := s.Session.Unavailable(); ok && (s.unread(time.Now()) || !s.takes(time.Now())) {
		return &queue.Outage{Outage: o}
	}
	return nil
}

// exceeded is the error of a call behind so many that wait.
func (s *Shares) exceeded(behind int) *Exceeded {
	e := &Exceeded{Rate: s.division.Rate, Waiting: behind}
	unread := s.division.Slow() && s.tokens.of == nil
	e.Starting = (unread || !s.served && !s.division.Slow()) && time.Since(s.begun) < starting
	if d, ok := s.bucket.Next(time.Now()); ok && !unread {
		e.RetryAfter = s.division.Behind(d, behind, len(s.held))
	}
	return e
}
