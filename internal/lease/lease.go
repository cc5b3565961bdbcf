package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// The reasons for which a lease is lost, each wrapped with details.
var (
	// ErrDeadline: no renewal was acknowledged in time.
	ErrDeadline = errors.New("lease was not renewed in time")
	// ErrGone: etcd says that the lease does not exist.
	ErrGone = errors.New("lease is gone")
	// ErrDenied: the client may not renew it.
	ErrDenied = errors.New("renewal of the lease is denied")
)

// Options say how to keep a lease.
type Options struct {
	TTL    time.Duration // whole seconds; etcd may grant more
	Margin time.Duration // how long before its expiry the lease counts as lost
	Log    *zap.Logger
	Now    func() time.Time // defaults to time.Now; must carry a monotonic reading
}

// Lease is one lease that is kept alive until Close, or lost. It is safe for
// concurrent use.
type Lease struct {
	api    API
	id     int64
	now    func() time.Time
	log    *zap.Logger
	window window

	stop context.CancelFunc
	done chan struct{}
	wg   sync.WaitGroup

	once  sync.Once
	cause error // set before done is closed
}

// Grant takes a new lease and keeps it alive. It returns an error if etcd
// refuses or ctx ends first; then a lease that may have been granted all the
// same is revoked, or expires. ctx bounds the call only.
func Grant(ctx context.Context, api API, o Options) (*Lease, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	// A client-chosen ID makes a repeated grant harmless: it finds its own
	// lease. The time of trust counts from the first try.
	id := rand.Int64N(1<<62) + 1
	sent := o.Now()
	var pause commit.Backoff
	for tries := 1; ; tries++ {
		granted, err := api.Grant(ctx, id, int64(o.TTL/time.Second))
		if isExist(err) {
			if tries == 1 {
				id, sent, tries = rand.Int64N(1<<62)+1, o.Now(), 0
				continue // a stranger's
			}
			granted, err = api.Granted(ctx, id)
		}
		if err == nil && granted > 0 {
			return start(api, id, granted, sent, o), nil
		}
		if err == nil { // granted and expired meanwhile
			id, sent, tries = rand.Int64N(1<<62)+1, o.Now(), 0
			continue
		}
		if commit.Transient(err) {
			wait := pause.Wait(ctx)
			if wait == nil {
				continue
			}
			err = errors.Join(wait, err)
		}
		go discard(api, id)
		return nil, fmt.Errorf("grant a lease: %w", err)
	}
}

// discard revokes a lease of which nobody knows whether it was granted.
func discard(api API, id int64) {
	ctx, cancel := context.WithTimeout(context.Background(), commit.CallTimeout)
	defer cancel()
	_ = api.Revoke(ctx, id) // it expires in any case
}

func start(api API, id, granted int64, sent time.Time, o Options) *Lease {
	ctx, stop := context.WithCancel(context.Background())
	ttl := time.Duration(granted) * time.Second
	l := &Lease{
		api: api, id: id, now: o.Now, log: o.Log.With(zap.String("lease", fmt.Sprintf("%016x", id))),
		window: window{ttl: ttl, margin: o.Margin, deadline: sent.Add(ttl - o.Margin)},
		stop:   stop, done: make(chan struct{}),
	}
	l.wg.Go(func() { l.renew(ctx) })
	l.wg.Go(func() { l.watch(ctx) })
	return l
}

// ID is the lease's ID.
func (l *Lease) ID() int64 { return l.id }

// TTL is the TTL that etcd granted.
func (l *Lease) TTL() time.Duration { return l.window.ttl }

// Deadline is until when the lease may be trusted, as far as known now.
func (l *Lease) Deadline() time.Time { return l.window.until() }

// Valid tells whether the lease may be trusted now. It reads the clocks itself,
// so it is right even before a late timer has fired. If it returns false, Done is
// closed.
func (l *Lease) Valid() bool {
	select {
	case <-l.done:
		return false
	default:
	}
	if l.window.open(l.now()) {
		return true
	}
	l.Lose(ErrDeadline)
	return false
}

// Done is closed when the lease is lost or closed.
func (l *Lease) Done() <-chan struct{} { return l.done }

// Cause tells why Done is closed, or nil while it is not.
func (l *Lease) Cause() error {
	select {
	case <-l.done:
		return l.cause
	default:
		return nil
	}
}

// Lose ends the lease for a reason that is known elsewhere. The first reason
// counts.
func (l *Lease) Lose(cause error) {
	l.once.Do(func() {
		l.cause = cause
		l.stop()
		close(l.done)
	})
}

// Close stops the renewals, with that cause, and waits for the lease's
// goroutines. It does not revoke: see Revoke.
func (l *Lease) Close(cause error) {
	l.Lose(cause)
	l.wg.Wait()
}

// Revoke ends the lease in etcd, and with it all its keys. It repeats until etcd
// has confirmed that or ctx ends, and returns the last error then. Call it after
// Close or Lose.
func (l *Lease) Revoke(ctx context.Context) error {
	var pause commit.Backoff
	for {
		err := l.api.Revoke(ctx, l.id)
		if err == nil {
			return nil
		}
		if commit.Denied(err) {
			return err // a key on the lease is outside our role: it must expire
		}
		if wait := pause.Wait(ctx); wait != nil {
			return errors.Join(wait, err)
		}
	}
}

// watch ends the lease at its deadline. It looks at least twice a second, since
// timers stand still while a machine is suspended and the wall clock does not.
func (l *Lease) watch(ctx context.Context) {
	const look = 500 * time.Millisecond
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if !l.Valid() {
				return
			}
			t.Reset(max(time.Millisecond, min(look, l.Deadline().Sub(l.now()))))
		}
	}
}

func isExist(err error) bool    { return errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseExist) }
func isNotFound(err error) bool { return errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseNotFound) }
