package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// most is how many lanes may be open at a time.
const most = 4

// lane is one way on which renewals go to etcd: a stream, and a new one when that
// breaks.
type lane struct {
	ctx context.Context
	end context.CancelFunc
}

// renew keeps renewals going until the lease ends. One lane carries them. If an
// answer is late, another lane is opened beside the newest, most likely to another
// member, and the one that answers first carries on alone: so neither members that
// swallow what is sent, several in a row, nor an etcd that takes up to half of the
// time of trust for each answer costs the lease.
func (l *Lease) renew() {
	var lanes []*lane // the newest last
	answered, late := make(chan *lane), make(chan *lane)
	begin := func() {
		n := &lane{}
		n.ctx, n.end = context.WithCancel(l.ctx)
		lanes = append(lanes, n)
		l.wg.Go(func() { l.renewBy(n, answered, late) })
	}
	begin()
	for {
		select {
		case <-l.ctx.Done():
			return
		case n := <-late:
			if n != lanes[len(lanes)-1] {
				continue
			}
			if len(lanes) == most {
				lanes[0].end()
				lanes = lanes[1:]
			}
			begin()
		case n := <-answered:
			if !slices.Contains(lanes, n) {
				continue // another was before it
			}
			for _, other := range lanes {
				if other != n {
					other.end()
				}
			}
			lanes = []*lane{n}
		}
	}
}

// renewBy keeps a stream of renewals open until its lane ends. An expired auth
// token breaks a stream as well, and the new one gets a new token: so
// "unauthenticated" is a reason to reopen, not a loss.
func (l *Lease) renewBy(n *lane, answered, late chan<- *lane) {
	tell := func(to chan<- *lane) {
		select {
		case to <- n:
		case <-n.ctx.Done():
		}
	}
	pause := commit.Backoff{Most: min(time.Second, l.patience())}
	for {
		err := l.renewOn(n.ctx, func() { pause.Reset(); tell(answered) }, func() { tell(late) })
		switch {
		case n.ctx.Err() != nil:
			return
		case errors.Is(err, ErrGone):
			l.Lose(err)
			return
		case commit.Denied(err):
			l.Lose(fmt.Errorf("%w: %w", ErrDenied, err))
			return
		}
		l.log.Debug("stream of lease renewals ended", zap.Error(err))
		l.api.Reconnect()
		if pause.Wait(n.ctx, nil) != nil {
			return
		}
	}
}

// interval is the time between two renewals. It leaves at least half of the time of
// trust for an answer.
func (l *Lease) interval() time.Duration {
	return min(l.window.ttl/3, (l.window.ttl-l.window.margin)/2)
}

// patience is how long a renewal may stay unanswered before another lane is opened:
// short enough for several within the time of trust.
func (l *Lease) patience() time.Duration { return (l.window.ttl - l.window.margin) / 8 }

// renewOn renews over one stream until it breaks or ctx ends. It calls answered
// after each renewal that was acknowledged, and late, in another goroutine, when
// one is not in time.
//
// Only one renewal at a time is under way on a stream: so an answer belongs to the
// renewal that was sent last, and one that comes when none is due shows that this
// is not so.
func (l *Lease) renewOn(ctx context.Context, answered, late func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Opening and sending can hang as well, so patience begins before them.
	silent := time.AfterFunc(l.patience(), late)
	defer silent.Stop()
	s, err := l.api.Renewals(ctx)
	if err != nil {
		return err
	}
	answers := make(chan answer)
	l.wg.Go(func() { receive(ctx, s, answers) })

	var sent Moment // of the renewal under way, or zero
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-next.C:
			silent.Reset(l.patience())
			sent = l.now() // stamped before it is sent: never too late
			if err := s.Send(l.id); err != nil {
				for a := range answers { // Recv has the reason
					err = a.err
				}
				return err
			}
		case a, ok := <-answers:
			if !ok {
				return ctx.Err()
			}
			if err := l.check(a, sent); err != nil {
				return err
			}
			silent.Stop()
			if l.extend(a, sent) {
				answered()
			}
			next.Reset(max(time.Millisecond, l.interval()-l.now().Sub(sent.Time)))
			sent = Moment{}
		}
	}
}

// check returns an error if an answer does not acknowledge the renewal that was sent
// then: ErrGone if etcd answers that the lease does not exist.
func (l *Lease) check(a answer, sent Moment) error {
	switch {
	case a.err != nil:
		return a.err
	case sent.IsZero() || a.id != l.id:
		return fmt.Errorf("answer to no renewal of ours (lease %016x)", a.id)
	case a.seconds <= 0:
		return ErrGone
	}
	return nil
}

// extend extends the window by an acknowledged renewal and reports whether it did. If the
// window has closed before, the lease is lost.
func (l *Lease) extend(a answer, sent Moment) bool {
	if ttl := time.Duration(a.seconds) * time.Second; ttl < l.window.ttl {
		// It runs for less than was granted, so it was not renewed now.
		l.log.Warn("renewal gave less than the granted TTL", zap.Duration("ttl", ttl))
		return false
	}
	if !l.window.renewed(sent, l.now()) {
		l.Lose(ErrDeadline)
		return false
	}
	return true
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
