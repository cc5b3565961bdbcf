package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/either"
	"github.com/etcdkit/etcdkit/internal/join"
	"github.com/etcdkit/etcdkit/internal/lease"
	"github.com/etcdkit/etcdkit/internal/life"
)

type helperKey struct{}

// relationOf returns the relation of a call with a ctx. It is part if ctx runs under a permit, a run or an attempt of the session that has
// not ended.
func relationOf(ctx context.Context, s *Session) relation {
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
func Accepts(ctx context.Context, s *Session) context.Context {
	if relationOf(ctx, s) == fresh {
		return s.work.accept
	}
	return s.work.working
}

// Refuses reports whether the session takes no further call with ctx.
func Refuses(ctx context.Context, s *Session) bool {
	return s.work.accept.Err() != nil && Accepts(ctx, s).Err() != nil
}

// Working returns a context that ends when Close waits for no work any more. What is acquired with a ctx that is derived from it
// serves work, and Close waits for it only after that.
func Working(s *Session) context.Context { return s.work.working }

// Do runs a call that ends, with ErrClosed, when the session accepts none with ctx any more: what it was changing may be changed
// or not.
func (s *Session) Do(ctx context.Context, call func(context.Context) error) error {
	accepts := Accepts(ctx, s)
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

// fail notes an error for Close to return.
func (s *Session) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeErr = join.Errors(s.closeErr, err)
}

// bury revokes a lost lease. If etcd denies that, the lease may exist for one more TTL, with the keys of permits that have
// ended. If the session is closed within that time, the revocation is tried once more, and Close reports its failure.
func bury(s *Session, l *lease.Lease, cause error) {
	err := s.revoke(l, cause)
	if err == nil {
		return
	}
	s.opts.Log.Debug("the lost lease could not be revoked and will expire", zap.Error(err))
	if s.ctx.Err() == nil { // it is denied
		t := time.NewTimer(l.TTL())
		defer t.Stop()
		select {
		case <-t.C:
			return
		case <-s.ctx.Done():
			err = l.Revoke(s.late)
		}
	}
	if err != nil && !errors.Is(cause, lease.ErrGone) {
		s.fail(leftToExpire(s, l, err)) // to etcd it may be alive, with what was held
	}
}

// leftToExpire is the error of Close for a lease of which etcd has not confirmed that it is revoked: what was held on it is
// free once it expires. It may have ended before, by a revocation whose answer was lost or, if its presence key is gone,
// with that key.
func leftToExpire(s *Session, l *lease.Lease, err error) error {
	if s.etcd.Ctx().Err() != nil {
		err = fmt.Errorf("the client was closed, or its Config.Context ended, before its session: %w", err)
	}
	return fmt.Errorf("close session: lease %016x is left to expire, unless it has ended: %w", l.ID(), err)
}

// Close ends the session: no new work is accepted, then it waits until nothing is held or ctx
// ends, ends what is still held, revokes the lease and waits for its goroutines. It may be
// called more than once, also concurrently.
func (s *Session) Close(ctx context.Context) error {
	defer context.AfterFunc(ctx, s.rush)()
	s.work.close()
	awaitHolders(ctx, s)
	s.over() // the second that the helpers have is one of the two that Close takes after the end of its ctx
	s.work.awaitHelpers(s.ctx)
	s.stop()
	s.shut.Do(func() {
		<-s.ran // it may still start a last request to etcd
		finish(s)
		s.abandon()
		s.etcd.Close()
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closeErr
}

// leaving returns a ctx that ends two seconds after another one has ended and rush was called. It does not end with the client:
// one that is closed ends neither what runs now nor the ctx of Close.
func leaving(ended context.Context) (left context.Context, rush context.CancelFunc) {
	hurry, rush := context.WithCancel(context.Background())
	left, leave := context.WithCancel(context.Background())
	context.AfterFunc(ended, func() { context.AfterFunc(hurry, func() { time.AfterFunc(2*time.Second, leave) }) })
	return left, rush
}

// finish has no goroutine started any more, and waits for those that there are. One of Callback is left if it has not returned
// two seconds after the holders were ended and a ctx of Close has ended.
func finish(s *Session) {
	returned := s.goroutines.end()
	select {
	case <-returned:
	case <-s.left.Done():
	}
	select {
	case <-returned: // also if both are closed
	default:
		s.fail(errors.New("close session: a function of the program that the session has called, a hook or the function of a run, has not returned"))
	}
}
