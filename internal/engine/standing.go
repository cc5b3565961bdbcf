package engine

import (
	"context"

	"github.com/etcdkit/etcdkit/internal/either"
	"github.com/etcdkit/etcdkit/internal/join"
	"github.com/etcdkit/etcdkit/internal/lease"
	"github.com/etcdkit/etcdkit/internal/life"
)

// standing is what a call is to Close of its session.
type standing int

const (
	fresh  standing = iota // new work: refused once Close has begun
	part                   // of a permit, a run or an attempt that Close waits for: refused once none of these is left
	helper                 // it serves such parts, as a share of a rate does: likewise, and Close does not wait for it before
)

type helperKey struct{}

// standing returns that of a call with a ctx. It is part if ctx runs under a permit, a run or an attempt of the session that has
// not ended.
func (s *Session) standing(ctx context.Context) standing {
	for t := range life.Trusts(ctx) {
		if e, ok := t.(interface{ Of() string }); ok && e.Of() == s.id {
			return part
		}
	}
	if ctx.Value(helperKey{}) == s {
		return helper
	}
	return fresh
}

// Accepts returns a context that ends when the session takes no further call with ctx: when Close begins, or, of a part of
// work in progress, when Close waits for no work any more. Then the call returns ErrClosed.
func (s *Session) Accepts(ctx context.Context) context.Context {
	if s.standing(ctx) == fresh {
		return s.accept
	}
	return s.working
}

// Refuses reports whether the session takes no further call with ctx.
func (s *Session) Refuses(ctx context.Context) bool {
	return s.accept.Err() != nil && s.Accepts(ctx).Err() != nil
}

// Working returns a context that ends when Close waits for no work any more. What is acquired with a ctx that is derived from it
// serves work, and Close waits for it only after that.
func (s *Session) Working() context.Context { return s.working }

// Accepts returns a context that ends when the epoch takes no further call with ctx: with the epoch, with ErrEpoch as its cause,
// or with that of the session's Accepts, with ErrClosed.
func (e *Epoch) Accepts(ctx context.Context) context.Context {
	if e.sess.standing(ctx) == fresh {
		return e.accept
	}
	return e.working
}

// Open derives a ctx that also ends when the session accepts no call with ctx any more, with ErrClosed as its cause. If that is
// so already, ctx has ended when Open returns.
func (s *Session) Open(ctx context.Context) (context.Context, context.CancelFunc) {
	c := either.Of(ctx, s.Accepts(ctx), ErrClosed)
	return c, c.Release
}

// Do runs a call that ends, with ErrClosed, when the session accepts none with ctx any more: what it was changing may be changed
// or not.
func (s *Session) Do(ctx context.Context, call func(context.Context) error) error {
	accepts := s.Accepts(ctx)
	if accepts.Err() != nil {
		return ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	open := either.Of(ctx, accepts, ErrClosed)
	defer open.Release()
	err := call(open)
	if err != nil && accepts.Err() != nil {
		err = closing(ctx.Err(), err)
	}
	return err
}

// Live returns the present epoch, and waits for one between two leases. It
// returns ErrClosed, ctx's error joined with why there is no lease, or ErrLeaseless.
func (s *Session) Live(ctx context.Context) (*Epoch, error) { return LiveAt(ctx, s, lease.Now()) }

// LiveAt is Live by a reading of the clocks that the caller has made just now.
func LiveAt(ctx context.Context, s *Session, at lease.Moment) (*Epoch, error) {
	if s.leaseless {
		return nil, ErrLeaseless
	}
	for ; ; at = lease.Now() {
		s.mu.Lock()
		e, turn := s.current, s.turn
		s.mu.Unlock()
		if s.Refuses(ctx) {
			return nil, ErrClosed
		}
		if e != nil && e.ValidAt(at) {
			return e, nil
		}
		select {
		case <-turn: // an epoch that has ended gives way at once
		case <-s.Accepts(ctx).Done():
		case <-ctx.Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			return nil, join.Errors(ctx.Err(), s.trouble)
		}
	}
}
