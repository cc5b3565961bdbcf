package concurrency

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// Permit is the right to go ahead that a semaphore or a mutex has granted, or the
// term that an election has. It ends when it is released or lost, and then stays
// ended. It is safe for concurrent use.
type Permit struct {
	gate  *gate
	epoch *epoch
	claim *claim
	token int64
	since time.Time
	until time.Time // end of MaxHold, or zero

	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer // MaxHold
	lost   chan struct{}

	mu    sync.Mutex
	ended error
	asked context.Context // nil until wanted
	ask   context.CancelCauseFunc
	word  *StepDownError

	release sync.Once
	given   atomic.Bool   // its holder has ended it
	done    chan struct{} // closed when the release is done
	err     error         // its outcome
	refused chan error    // has an error of etcd's if it refuses the release for now
}

func newPermit(ctx context.Context, e *epoch, c *claim) *Permit {
	p := &Permit{gate: c.gate, epoch: e, claim: c, token: c.token, since: time.Now(), lost: make(chan struct{}), done: make(chan struct{}), refused: make(chan error, 1)}
	if c.request.hasMaxHold {
		p.until = p.since.Add(c.request.maxHold)
	}
	p.ctx, p.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return p
}

// arm starts the clock of MaxHold.
func (p *Permit) arm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.until.IsZero() {
		p.timer = time.AfterFunc(time.Until(p.until), p.heldTooLong)
	}
}

// Context returns a context that ends when the permit ends, with a *LostError as
// its cause (see context.Cause). It keeps the values of the ctx given to Acquire
// but not its cancellation, because that bounded only the wait.
//
// It ends before etcd gives the permit to another, under the assumptions named
// in the package documentation.
func (p *Permit) Context() context.Context { return p.ctx }

// Lost returns a channel that is closed when the permit ends other than by Release of
// this permit. What Release itself finds out, only its error and Trace report.
func (p *Permit) Lost() <-chan struct{} { return p.lost }

// Err returns nil while the permit is held, and a *LostError that says why it
// ended from then on: errors.Is matches it with ErrLost and the exact cause, or
// with ErrReleased. It reads the clocks itself, so right after a pause of the
// process it tells the truth even if no timer has fired yet.
func (p *Permit) Err() error {
	p.mu.Lock()
	err := p.ended
	p.mu.Unlock()
	if err != nil {
		return err
	}
	switch {
	case !p.until.IsZero() && !time.Now().Before(p.until):
		p.heldTooLong()
	case p.epoch.valid():
		return nil
	default:
		// Whoever ends the epoch may have other permits to end first.
		cause, reason := p.epoch.why()
		if lost := p.lose(cause, reason.Error()); lost != nil {
			p.gate.sess.opts.Trace.lost(lost)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// Token returns the permit's fencing token: the revision of etcd at which the
// request was made. For a mutex or an election, tokens strictly rise from holder to holder, so a
// resource that refuses a smaller token than the greatest it has seen is safe
// from former holders. For a limit above 1 that rule would refuse rightful
// holders: use Guard there. After etcd was restored from a backup, tokens can
// repeat, see docs/operations.md.
func (p *Permit) Token() int64 { return p.token }

// Guard returns a condition for a Txn of the caller's own: the Txn takes effect
// only while the permit's key stands in etcd. It holds whatever the clocks do.
// The client must see the same keys as the session's.
func (p *Permit) Guard() clientv3.Cmp { return commit.Guard(p.claim.key, p.token) }

// Deadline returns until when the permit is trusted as things stand: it moves on
// with each renewal of the session's lease, up to the end of MaxHold.
func (p *Permit) Deadline() time.Time {
	d := p.epoch.lease.Deadline()
	if !p.until.IsZero() && p.until.Before(d) {
		return p.until
	}
	return d
}

// end ends the permit here and returns the error that tells so, or nil if it had
// ended before. Whether its key is gone is the caller's business.
func (p *Permit) end(cause error, reason string) *LostError {
	p.mu.Lock()
	if p.ended != nil {
		p.mu.Unlock()
		return nil
	}
	err := &LostError{Name: p.gate.name, Token: p.token, Cause: cause, Reason: reason}
	p.ended = err
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	p.cancel(err)
	return err
}

// lose is end for every end but the holder's own release. If it returns an error,
// the caller reports it to Trace.Lost once it holds nothing up by that.
func (p *Permit) lose(cause error, reason string) *LostError {
	err := p.end(cause, reason)
	if err != nil {
		close(p.lost)
	}
	return err
}

// heldTooLong ends the permit by MaxHold and gives it back.
func (p *Permit) heldTooLong() {
	lost := p.lose(ErrHeldTooLong, fmt.Sprintf("MaxHold of %v has passed", p.claim.request.maxHold))
	if lost == nil {
		return
	}
	p.epoch.drop(p)
	p.gate.withdrawLater(p.epoch, p.claim)
	p.gate.sess.opts.Trace.lost(lost)
}
