package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	// idleTime is how long a process keeps its shares without a call. Meanwhile it reads the queue,
	// so others that need the shares get them.
	idleTime = time.Minute
)

// request is one for a share.
type request struct {
	cancel    context.CancelFunc
	withdrawn bool
}

// loop takes steps until the process is idle and has no shares, or Close waits for no work any more.
func (s *Shares) loop() {
	closing := engine.Working(s.Session)
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
	if s.trouble.read = s.Session.Explain(err); err != nil && s.unread(time.Now()) {
		s.fail(s.trouble.read)
	}
	if d.Shares > 0 {
		s.learn(d, v, read)
	}
	s.serve()
	s.refuseLate(0)
	now := time.Now()
	o := rate.Own{
		Held: int64(len(s.held)), Asked: int64(len(s.asks) + len(s.granted)), TurnOver: now.Sub(s.since) >= s.division.Turn(),
		Idle: len(s.calls) == 0 && s.demand.Idle(now) >= idleTime,
	}
	if o.Idle && o.Held+o.Asked == 0 {
		s.running, s.division = false, rate.Division{} // no step reads it from now on
		return false
	}
	leases, own := leasesOf(ClaimsOf(v, d)), int64(s.Session.Lease())
	if slices.Contains(leases, own) { // its request waits, or has the share
		s.trouble.acquire = nil
	}
	switch {
	case o.Idle: // also if the rate cannot be read
		s.do(rate.Next(rate.Seen{}, o), d)
	case d.Shares > 0:
		o.Need = d.Need(s.demand.PerSecond(now), len(s.calls), o.Held)
		s.do(rate.Next(rate.Survey(leases, own, d.Shares), o), d)
	}
	if len(s.granted) > 0 && time.Since(s.begun) < starting {
		time.AfterFunc(stepEvery/10, s.prompt) // they may count soon
	}
	return true
}

// store stores the rate of the program that was called last, if none is stored.
func (s *Shares) store(ctx context.Context) error {
	s.mu.Lock()
	r := s.user.Configured()
	s.mu.Unlock()
	_, err := s.Queue.Limit.Init(ctx, rate.Divide(r).Shares, Stored(r, 1))
	return err
}

// learn takes over the rate that was read, and decides by it which shares count, and which are returned: after the rate was
// lowered there may be fewer, and after it was divided anew those from before are returned (rate.Former). Only a share that
// the read shows among the first ones of the queue counts. So a process takes tokens by an older rate only for requests that
// are older than the change. What was granted after the read began is not returned because of it.
func (s *Shares) learn(d rate.Division, v mirror.View, read time.Time) {
	if d != s.division && !time.Now().Before(s.fresh) { // tokens have accrued by a rate that counted no more
		s.bucket.Void(time.Now())
	}
	s.division, s.revision, s.fresh = d, v.Limits.Own.Rev, read.Add(s.Session.TTL())
	if !read.Before(s.changed) {
		s.changed = time.Time{}
	}
	claims, place := ClaimsOf(v, d), map[int64]int{}
	for i, c := range claims {
		place[c.Create] = i
	}
	var counts, later, back []*Share
	retired := false
	for _, p := range slices.Concat(s.held, s.granted) {
		switch i, shown := place[p.Token]; {
		case shown && claims[i].Units > 1:
			back, retired = append(back, p), true
		case shown && claims[i].Holds:
			counts = append(counts, p)
		case shown && int64(i) < d.Shares, p.Since.After(read):
			later = append(later, p)
		default:
			back = append(back, p)
		}
	}
	lost := slices.ContainsFunc(s.held, func(p *Share) bool { return !slices.Contains(counts, p) })
	s.granted = later
	s.setHeld(counts)
	if lost {
		s.bucket.Void(time.Now())
	}
	if retired && len(counts) == 0 { // it begins anew: the shares that it asks for count when the others have returned theirs
		s.begun, s.served = time.Now(), false
	}
	s.give(back, nil)
}

// do takes one step.
func (s *Shares) do(next rate.Step, d rate.Division) {
	if n := next.Return; n > 0 {
		rest := len(s.held) - int(n)
		back := s.held[rest:]
		var left *leftover
		if rest == 0 {
			left = s.leaving(time.Now())
		}
		s.setHeld(s.held[:rest:rest])
		s.give(back, left)
	}
	s.withdraw(int(next.Withdraw))
	for range mayAsk(int(next.Ask), len(s.held)+len(s.asks)+len(s.granted), engine.Spare(s.Session)) {
		s.ask(d)
	}
	s.arm()
}

// mayAsk returns for how many of n shares a process asks, if its session may have some requests more: for no more than that,
// and for one if it has none. The error of that one is why its calls fail.
func mayAsk(n, has, spare int) int {
	if has == 0 {
		spare = max(spare, 1)
	}
	return min(n, spare)
}

// withdraw withdraws requests, the newest ones first, and returns shares that do not count yet.
func (s *Shares) withdraw(n int) {
	first := max(0, len(s.asks)-n)
	n -= len(s.asks) - first
	for _, a := range s.asks[first:] {
		a.withdrawn = true
		a.cancel()
	}
	s.asks = s.asks[:first]
	rest := len(s.granted) - n
	s.give(s.granted[rest:], nil)
	s.granted = s.granted[:rest:rest]
}

// ask asks for one share, in the background.
func (s *Shares) ask(d rate.Division) {
	ctx, cancel := context.WithCancel(engine.Working(s.Session))
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
	case err == nil && (a.withdrawn || engine.Working(s.Session).Err() != nil):
		s.give([]*Share{p}, nil)
	case err == nil:
		s.trouble.acquire = nil
		s.granted = append(s.granted, p)
		context.AfterFunc(p.Permit.Context(), func() { s.drop(p) })
		s.prompt() // it counts when the queue was read
	case !a.withdrawn && !errors.Is(err, engine.ErrClosed) && engine.Working(s.Session).Err() == nil: // else end has the error
		if len(s.held)+len(s.asks)+len(s.granted) == 0 {
			s.trouble.acquire = err
			s.fail(err)
		}
	}
}

// give returns shares that setHeld has left out, in the background, and stores before that what they leave. A
// release that etcd does not confirm ends with the lease.
func (s *Shares) give(back []*Share, left *leftover) {
	for _, p := range back {
		engine.CallbackLater(s.Session, func(ctx context.Context) { // hooks learn of it
			ctx, cancel := context.WithTimeout(ctx, s.Session.ReleaseTimeout())
			defer cancel()
			left.save(ctx)
			_ = p.Permit.Release(ctx)
		})
	}
}

// end returns all shares and ends all calls: the session is closing.
func (s *Shares) end() {
	back, left := s.held, s.leaving(time.Now())
	s.setHeld(nil)
	s.give(back, left)
	s.give(s.granted, nil)
	s.granted = nil
	s.fail(engine.ErrClosed)
	s.running = false
}

// DivisionOf returns the rate that a view of the queue shows, with the number of its shares.
func DivisionOf(v mirror.View) (rate.Division, error) {
	stored := v.Limits.Own
	if stored.Rev == 0 {
		return rate.Division{}, limit.ErrNone
	}
	if stored.Damaged {
		return rate.Division{}, limit.Unreadable(stored)
	}
	return divisionOf(stored.Limit.Limit, stored.Rate)
}

func divisionOf(shares int64, r record.Rate) (rate.Division, error) {
	d := rate.Division{Rate: rate.Rate{PerSecond: r.PerSecond, Burst: r.Burst}, Shares: shares}
	if err := d.Rate.Check(); err != nil || d.Shares < 1 || d.Shares > d.Burst {
		return rate.Division{}, fmt.Errorf("%w: it has no rate", limit.ErrUnreadable)
	}
	return d, nil
}

// mostWeight bounds what is read: no division has more shares.
const mostWeight = 64

// formerOf returns what requests from before the stored rate weigh.
func formerOf(v mirror.View, d rate.Division) rate.Former {
	own := v.Limits.Own
	before := own.Rate.Before
	if before < 1 || before > own.Rev {
		before = own.Rev
	}
	return rate.Former{Before: before, Weight: max(1, min(own.Rate.Former, d.Shares, mostWeight))}
}

// Stored returns the record of a rate, with what requests from before weigh.
func Stored(r rate.Rate, weight int64) record.Rate {
	if weight == 1 {
		weight = 0
	}
	return record.Rate{PerSecond: r.PerSecond, Burst: r.Burst, Former: weight}
}

// Change returns the number of shares, and the rate, that replace those that a view shows.
func Change(v mirror.View, to rate.Rate) (int64, record.Rate) {
	was, err := DivisionOf(v)
	if err != nil {
		return rate.Divide(to).Shares, Stored(to, 1)
	}
	if was.Rate == to {
		return was.Shares, v.Limits.Own.Rate
	}
	weighs := int64(1)
	for _, c := range ClaimsOf(v, was) {
		weighs = max(weighs, c.Units)
	}
	d, weight := was.Change(to, weighs)
	return d.Shares, Stored(to, weight)
}

// Claim is what a request takes up of the shares.
type Claim struct {
	mirror.Request
	Units int64 // how many: above 1 if it is from before the rate was changed, and its process has to ask anew
	Holds bool  // whether it has them; otherwise it waits
}

// ClaimsOf returns what the requests of a view take up of a division, in order. All decisions over shares, and what
// RateLimiter.Status shows, follow from it.
func ClaimsOf(v mirror.View, d rate.Division) []Claim {
	former, requests := formerOf(v, d), v.Requests()
	claims, created := make([]Claim, len(requests)), make([]int64, len(requests))
	for i, r := range requests {
		claims[i], created[i] = Claim{Request: r, Units: former.Units(r.Create)}, r.Create
	}
	for i := range d.Fit(created, former) {
		claims[i].Holds = true
	}
	return claims
}

// leasesOf returns the leases of the requests, in order, each as often as its request takes up shares.
func leasesOf(claims []Claim) (leases []int64) {
	for _, c := range claims {
		for range c.Units {
			leases = append(leases, c.Slot.Lease)
		}
	}
	return leases
}
