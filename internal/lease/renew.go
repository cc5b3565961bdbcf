package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// renew keeps a stream of renewals open until the lease ends. A stream that
// breaks or goes silent is replaced, most likely by one to another member. An
// expired auth token breaks a stream as well, and the new one gets a new token:
// so "unauthenticated" is a reason to reopen, not a loss.
func (l *Lease) renew() {
	var pause commit.Backoff
	for {
		acknowledged, err := l.renewOn()
		switch {
		case l.ctx.Err() != nil:
			return
		case errors.Is(err, ErrGone):
			l.Lose(err)
			return
		case commit.Denied(err):
			l.Lose(fmt.Errorf("%w: %w", ErrDenied, err))
			return
		}
		l.log.Debug("stream of lease renewals ended", zap.Error(err))
		if acknowledged {
			pause.Reset()
		}
		if pause.Wait(l.ctx, nil) != nil {
			return
		}
	}
}

// interval is the time between two renewals.
func (l *Lease) interval() time.Duration { return l.window.ttl / 3 }

// patience is how long a renewal may stay unanswered before the stream is given
// up: short enough for another try or two within the time of trust, and shorter
// than the interval, so that at most one renewal is under way.
func (l *Lease) patience() time.Duration { return (l.window.ttl - l.window.margin) / 4 }

var errSilent = errors.New("no answer to a renewal")

// renewOn renews over one stream until it breaks. It tells whether any renewal
// was acknowledged.
//
// Only one renewal is under way at a time, and a stream on which one stays
// unanswered is never used again: so an answer belongs to the renewal that was
// sent last, and one that comes when none is due shows that this is not so.
func (l *Lease) renewOn() (acknowledged bool, err error) {
	ctx, cancel := context.WithCancelCause(l.ctx)
	defer cancel(nil)
	// Opening and sending can hang as well, so patience begins before them.
	silent := time.AfterFunc(l.patience(), func() { cancel(errSilent) })
	defer silent.Stop()
	s, err := l.api.Renewals(ctx)
	if err != nil {
		return false, because(ctx, err)
	}
	answers := make(chan answer)
	l.wg.Go(func() { receive(ctx, s, answers) })

	next := time.NewTimer(0)
	defer next.Stop()
	var sent time.Time // of the renewal under way, or zero
	for {
		select {
		case <-ctx.Done():
			return acknowledged, context.Cause(ctx)
		case <-next.C:
			silent.Reset(l.patience())
			sent = l.now() // stamped before it is sent: never too late
			if err := s.Send(l.id); err != nil {
				for a := range answers { // Recv has the reason
					err = a.err
				}
				return acknowledged, because(ctx, err)
			}
		case a, ok := <-answers:
			switch {
			case !ok || a.err != nil:
				return acknowledged, because(ctx, a.err)
			case sent.IsZero() || a.id != l.id:
				return acknowledged, fmt.Errorf("answer to no renewal of ours (lease %016x)", a.id)
			case a.seconds <= 0:
				return acknowledged, ErrGone
			}
			silent.Stop()
			if ttl := time.Duration(a.seconds) * time.Second; ttl < l.window.ttl {
				// It runs for less than was granted, so it was not renewed now.
				l.log.Warn("renewal gave less than the granted TTL", zap.Duration("ttl", ttl))
			} else if acknowledged = true; !l.window.renewed(sent, l.now()) {
				l.Lose(ErrDeadline)
			}
			next.Reset(l.interval() - l.now().Sub(sent))
			sent = time.Time{}
		}
	}
}

// because prefers the reason for which we ended the stream to what gRPC makes of
// it.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

type answer struct {
	id, seconds int64
	err         error
}

// receive hands on what comes, until the stream breaks, which is the last answer,
// or ctx ends.
func receive(ctx context.Context, s Stream, answers chan<- answer) {
	defer close(answers)
	for {
		var a answer
		a.id, a.seconds, a.err = s.Recv()
		select {
		case answers <- a:
		case <-ctx.Done():
			return
		}
		if a.err != nil {
			return
		}
	}
}
