package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// renew keeps a stream of renewals open until the lease ends. A stream that
// breaks or goes silent is replaced, most likely by one to another member. An
// expired auth token breaks a stream as well, and the new one gets a new token:
// so "unauthenticated" is a reason to reopen, not a loss.
func (l *Lease) renew(ctx context.Context) {
	var pause commit.Backoff
	for ctx.Err() == nil {
		acknowledged, err := l.renewOn(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
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
		if pause.Wait(ctx) != nil {
			return
		}
	}
}

// interval is the time between two renewals.
func (l *Lease) interval() time.Duration { return l.window.ttl / 3 }

// patience is how long a renewal may stay unanswered before the stream is given
// up: short enough for another try or two within the time of trust.
func (l *Lease) patience() time.Duration {
	return max(50*time.Millisecond, (l.window.ttl-l.window.margin)/4)
}

// renewOn renews over one stream until it breaks. It tells whether any renewal
// was acknowledged.
func (l *Lease) renewOn(ctx context.Context) (acknowledged bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	// Opening can hang as well, so its time counts against the same patience.
	opened := time.AfterFunc(l.patience(), func() { cancel(errSilent) })
	s, err := l.api.Renewals(ctx)
	opened.Stop()
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return false, err
	}

	flight := inflight{now: l.now}
	received := make(chan error, 1)
	l.wg.Go(func() {
		err := l.receive(s, &flight)
		received <- err
		cancel(err)
	})
	err = l.send(ctx, s, &flight)
	cancel(err)
	if broken := <-received; !errors.Is(err, errSilent) {
		err = broken // what Recv says is why sending ended
	}
	return flight.acknowledged(), err
}

var errSilent = errors.New("no answer to a renewal")

// send sends a renewal at once and then one each interval, until ctx ends. It
// gives up when the oldest one stays unanswered for too long.
func (l *Lease) send(ctx context.Context, s Stream, flight *inflight) error {
	t := time.NewTimer(0)
	defer t.Stop()
	next := l.now()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
		}
		now := l.now()
		if flight.oldest(now) > l.patience() {
			return errSilent
		}
		if !now.Before(next) {
			next = now.Add(l.interval())
			flight.sent() // stamped before it is sent: never too late
			if err := s.Send(l.id); err != nil {
				return err
			}
		}
		t.Reset(min(l.interval(), l.patience()) / 2)
	}
}

func (l *Lease) receive(s Stream, flight *inflight) error {
	for {
		id, seconds, err := s.Recv()
		if err != nil {
			return err
		}
		sent, ok := flight.answered()
		switch {
		case !ok || id != l.id:
			return fmt.Errorf("answer to no renewal of ours (lease %016x)", id)
		case seconds <= 0:
			return ErrGone
		case time.Duration(seconds)*time.Second < l.window.ttl:
			// A lease that runs for less than was granted is none that
			// was renewed now.
			l.log.Warn("renewal gave less than the granted TTL", zap.Int64("seconds", seconds))
			continue
		}
		flight.acknowledge()
		if !l.window.renewed(sent, l.now()) {
			l.Lose(ErrDeadline)
			return ErrDeadline
		}
	}
}

// inflight holds the send times of the renewals of one stream that are not yet
// answered, oldest first.
type inflight struct {
	now func() time.Time

	mu    sync.Mutex
	times []time.Time
	any   bool
}

func (f *inflight) sent() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.times = append(f.times, f.now())
}

func (f *inflight) answered() (sent time.Time, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.times) == 0 {
		return time.Time{}, false
	}
	sent, f.times = f.times[0], f.times[1:]
	return sent, true
}

// oldest returns for how long the oldest renewal has been unanswered.
func (f *inflight) oldest(now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.times) == 0 {
		return 0
	}
	return now.Sub(f.times[0])
}

func (f *inflight) acknowledge() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.any = true
}

func (f *inflight) acknowledged() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.any
}
