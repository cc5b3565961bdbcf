package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// The reasons for which a lease is lost, each wrapped with details.
var (
	// ErrDeadline: no renewal was acknowledged in time.
	ErrDeadline = errors.New("lease was not renewed in time")
	// ErrGone: according to etcd, the lease does not exist.
	ErrGone = errors.New("lease is gone")
	// ErrDenied: the latest answer to a renewal was that the client may not renew it. It comes with
	// ErrDeadline: a refusal alone ends no lease.
	ErrDenied = errors.New("renewal of the lease is denied")
)

// Options say how to keep a lease.
type Options struct {
	TTL    time.Duration // whole seconds; etcd may grant more
	Margin time.Duration // how long before its expiry the lease counts as lost
	Log    *zap.Logger
	// Later runs what is left to do after a failed Grant, with a context that bounds it.
	Later func(func(ctx context.Context))
	// Renewed is called after each acknowledged renewal, with the time from the sending of the one
	// before to the answer, and the TTL. It must not block. It may be nil.
	Renewed func(id int64, age, ttl time.Duration)
	// Denied is called with each refusal of a renewal, which is then repeated, and with nil when a
	// renewal is acknowledged after refusals. It must not block. It may be nil.
	Denied func(err error)

	now func() Moment // defaults to Now
}

// Lease is one lease that is kept alive until it is closed or lost. It is safe for concurrent
// use.
type Lease struct {
	api    API
	id     int64
	now    func() Moment
	log    *zap.Logger
	window window
	report func(id int64, age, ttl time.Duration) // Options.Renewed
	denied refusal

	broken atomic.Bool // a stream has ended, and none was answered since: one line of the log is enough

	ctx context.Context // ends when the lease is lost or closed, with the cause
	end context.CancelCauseFunc
	wg  sync.WaitGroup
}

// Grant takes a new lease and keeps it alive. It returns an error if etcd refuses or ctx ends
// first. A lease that was granted all the same is then revoked by a function that Grant passes
// to Options.Later, or expires. ctx bounds only the call.
func Grant(ctx context.Context, api API, o Options) (*Lease, error) {
	if o.now == nil {
		o.now = Now
	}
	// A client-chosen ID makes a repeated grant harmless: the repetition finds the lease
	// of the first try. Trust counts from the first try.
	id := rand.Int64N(1<<62) + 1
	sent := o.now()
	var pause commit.Backoff
	for tries := 1; ; tries++ {
		granted, err := api.Grant(ctx, id, int64(o.TTL/time.Second))
		if isExist(err) {
			if tries == 1 {
				id, sent, tries = rand.Int64N(1<<62)+1, o.now(), 0
				continue // the ID is another lease's
			}
			granted, err = api.Granted(ctx, id)
		}
		if err == nil && granted > 0 {
			fresh := window{deadline: sent.add(time.Duration(granted)*time.Second - o.Margin)}
			if fresh.open(o.now()) {
				return start(api, id, granted, sent, o), nil
			}
			// The first try was sent so long ago that trust in the lease has ended.
			late := id
			o.Later(func(ctx context.Context) { _ = api.Revoke(ctx, late) })
		}
		if err == nil { // granted too late, or expired meanwhile
			id, sent, tries = rand.Int64N(1<<62)+1, o.now(), 0
			if err := ctx.Err(); err != nil {
				return nil, fmt.Errorf("grant a lease: %w", err)
			}
			continue
		}
		if commit.Transient(err) {
			api.Reconnect()
			if err = pause.Wait(ctx, err); err == nil {
				continue
			}
		}
		o.Later(func(ctx context.Context) { _ = api.Revoke(ctx, id) }) // it expires in any case
		return nil, fmt.Errorf("grant a lease: %w", err)
	}
}

func start(api API, id, granted int64, sent Moment, o Options) *Lease {
	ttl := time.Duration(granted) * time.Second
	l := &Lease{
		api: api, id: id, now: o.now, log: o.Log.With(zap.String("lease", fmt.Sprintf("%016x", id))),
		window: window{ttl: ttl, margin: o.Margin, deadline: sent.add(ttl - o.Margin)},
		report: o.Renewed, denied: refusal{report: o.Denied},
	}
	l.ctx, l.end = context.WithCancelCause(context.Background())
	l.wg.Go(l.renew)
	l.wg.Go(l.watch)
	return l
}

// ID is the lease's ID.
func (l *Lease) ID() int64 { return l.id }

// TTL is the TTL that etcd granted.
func (l *Lease) TTL() time.Duration { return l.window.ttl }

// Deadline returns until when the lease may be trusted unless it is renewed.
func (l *Lease) Deadline() time.Time { return l.window.until() }

// Valid reports whether the lease may be trusted now. It reads the clocks itself, so it is
// right even before a late timer has fired. If it returns false, the lease's context has ended.
func (l *Lease) Valid() bool { return l.ctx.Err() == nil && l.ValidAt(l.now()) }

// ValidAt is Valid by a reading of the clocks that the caller has made just now.
func (l *Lease) ValidAt(at Moment) bool {
	if l.ctx.Err() != nil {
		return false
	}
	if l.window.open(at) {
		return true
	}
	l.Lose(l.denied.overdue())
	return false
}

// Context returns a context that ends, with the cause, when the lease is lost or closed.
func (l *Lease) Context() context.Context { return l.ctx }

// Cause returns why the lease has ended, or nil.
func (l *Lease) Cause() error { return context.Cause(l.ctx) }

// Lose ends the lease for a reason that the caller has found. The first reason counts.
func (l *Lease) Lose(cause error) { l.end(cause) }

// Close stops the renewals with that cause and waits for the lease's goroutines. It does not
// revoke the lease: see Revoke.
func (l *Lease) Close(cause error) {
	l.Lose(cause)
	l.wg.Wait()
}

// Revoke ends the lease in etcd, and with it all its keys. It repeats until etcd has confirmed
// that or ctx ends, and then returns the last error. Call it after Close or Lose.
func (l *Lease) Revoke(ctx context.Context) error {
	var pause commit.Backoff
	for {
		err := l.api.Revoke(ctx, l.id)
		if err == nil {
			return nil
		}
		if commit.Denied(err) {
			return err // the client may not write a key on the lease: it must expire
		}
		if err := pause.Wait(ctx, err); err != nil {
			return err
		}
	}
}

// watch ends the lease at its deadline. It checks at least twice a second: timers stop while a
// machine is suspended, other clocks do not. Where there is one clock, its timer is enough.
func (l *Lease) watch() {
	const period = 500 * time.Millisecond
	t := time.NewTimer(period)
	defer t.Stop()
	for l.Valid() {
		now := l.now()
		left := l.Deadline().Sub(now.Time)
		if !now.single() {
			left = min(left, period)
		}
		t.Reset(max(time.Millisecond, left))
		select {
		case <-l.ctx.Done():
		case <-t.C:
		}
	}
}

func isExist(err error) bool    { return errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseExist) }
func isNotFound(err error) bool { return errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseNotFound) }
