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

// deniedPause is about how long the first repetition of a refused renewal waits. Each repetition opens a
// stream, for which etcd's client logs in: that costs etcd as much as a hundred requests.
const deniedPause = 100 * time.Millisecond

// maxLanes is how many lanes may be open at a time.
const maxLanes = 4

// lane is a sequence of streams that carry renewals to etcd, one after the other: when one
// breaks, the next is opened.
type lane struct {
	ctx context.Context
	end context.CancelFunc
}

// renew keeps renewals going until the lease ends. One lane carries them. If a response is
// late, another lane is opened beside the newest, most likely to another member, and the one
// that responds first carries on alone. So the lease survives members that swallow requests,
// several in a row, and an etcd that takes up to half of the time of trust for each response.
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
			if len(lanes) == maxLanes {
				lanes[0].end()
				lanes = lanes[1:]
			}
			begin()
		case n := <-answered:
			if !slices.Contains(lanes, n) {
				continue // another lane was first
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

// renewBy keeps a stream of renewals open until its lane ends. Each new stream gets a new auth token, so
// an expired one, or none because authentication was enabled, is a reason to reopen. So is any other
// refusal: the lease lives on in etcd, and an operator may grant the permission again while the lease may
// still be trusted. A refusal is an answer: the other lanes end.
func (l *Lease) renewBy(n *lane, answered, late chan<- *lane) {
	notify := func(to chan<- *lane) {
		select {
		case to <- n:
		case <-n.ctx.Done():
		}
	}
	pause := commit.Backoff{Most: min(time.Second, l.laneTimeout())}
	denied := commit.Backoff{Least: deniedPause, Most: l.laneTimeout()}
	patience := l.laneTimeout()
	for {
		err := l.renewOn(n.ctx, patience, func() { pause.Reset(); denied.Reset(); l.broken.Store(false); notify(answered) }, func() { notify(late) })
		switch {
		case n.ctx.Err() != nil:
			return
		case errors.Is(err, ErrGone):
			l.Lose(err)
			return
		}
		l.denied.answer(err)
		if patience = l.laneTimeout(); commit.NeedsLogin(err) || commit.NoLogin(err) {
			patience = l.loginTimeout()
		}
		if commit.Denied(err) {
			if !commit.NoLogin(err) { // that may be known without a request, while another lane logs in
				notify(answered)
			}
			if denied.Wait(n.ctx, nil) != nil {
				return
			}
			continue
		}
		if !l.broken.Swap(true) {
			l.log.Debug("stream of lease renewals ended", zap.Error(err))
		}
		l.api.Reconnect()
		if pause.Wait(n.ctx, nil) != nil {
			return
		}
	}
}

// interval is the time between two renewals. It leaves at least half of the time of trust for
// a response.
func (l *Lease) interval() time.Duration {
	return min(l.window.ttl/3, (l.window.ttl-l.window.margin)/2)
}

// laneTimeout is how long a renewal may remain without a response before another lane is
// opened: short enough for several within the time of trust.
func (l *Lease) laneTimeout() time.Duration { return (l.window.ttl - l.window.margin) / 8 }

// loginTimeout replaces laneTimeout for a stream that is opened because etcd asks for a login, as it does of
// the whole fleet at once when authentication is enabled. The logins of a fleet take seconds then, and one on
// another lane, for each session, would make them take twice as long.
func (l *Lease) loginTimeout() time.Duration { return (l.window.ttl - l.window.margin) / 2 }

// renewOn renews over one stream until it breaks or ctx ends. It calls answered after each
// acknowledged renewal, and late, in another goroutine, if a response is not there in time: patience for the
// stream and its first response.
//
// Only one renewal at a time is under way on a stream. So a response belongs to the renewal
// that was sent last, and a response that comes when none is due is an error.
func (l *Lease) renewOn(ctx context.Context, patience time.Duration, answered, late func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Opening and sending can hang as well, so the timeout begins before them.
	silent := time.AfterFunc(patience, late)
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
			silent.Reset(l.laneTimeout())
			sent = l.now() // stamped before it is sent: never too late
			if err := s.Send(l.id); err != nil {
				for a := range answers { // Recv returns the reason
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

// check returns an error if a response does not acknowledge the renewal sent at that time:
// ErrGone if, according to etcd, the lease does not exist.
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
		// Its remaining time is less than the granted TTL, so it was not renewed now.
		l.log.Warn("renewal gave less than the granted TTL", zap.Duration("ttl", ttl))
		return false
	}
	now, before := l.now(), l.window.until()
	if !l.window.renewed(sent, now) {
		l.Lose(l.denied.overdue())
		return false
	}
	l.denied.answer(nil)
	if l.report != nil {
		age := l.window.ttl - l.window.margin - before.Sub(now.Time) // the deadline counts from the sending
		l.report(l.id, age, l.window.ttl)
	}
	return true
}

type answer struct {
	id, seconds int64
	err         error
}

// receive passes responses on until ctx ends or the stream breaks; its error is the last one.
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
