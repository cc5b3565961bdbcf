package idempotency

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/lease"
)

// perLease is how many keys hang on one lease. When it expires, etcd deletes them in one go,
// in which nobody else writes, and it ends sixteen leases at a time: more keys stall all
// writers for longer (BenchmarkExpiry). With passwords it also checks all keys of a lease at
// each Put to it.
const perLease = 100

// pool hands out leases for records. Many records share one; the next is granted
// before the present one is used up, so nobody waits for a grant but the first.
type pool struct {
	sess *engine.Session
	ttl  time.Duration // that the server is asked for
	// window is for how long after its grant a lease is handed out. 0 is for as long as
	// the process lives: then the leases are renewed.
	window time.Duration

	mu       sync.Mutex
	leases   []*pooled
	granting chan struct{} // closed when the grant that goes on has ended
	failed   error         // of the last grant
	granted  []*pooled     // and not ended yet, oldest first
	reaping  bool
}

// pooled is one lease of a pool.
type pooled struct {
	id   clientv3.LeaseID
	sent moment // before it was asked for
	used int    // keys on it, as far as known: those of lost attempts may have moved
	live int    // those of attempts that go on in this process
	gone bool   // etcd knows it no more, or will not for long
}

// newRetention returns the pool for records that are kept for d. Leases are used again for
// a while, so they last longer by that.
func newRetention(sess *engine.Session, d time.Duration) *pool {
	window := max(min(d/20, 10*time.Minute), time.Second)
	return newPool(sess, d+window+spare, window)
}

// newWork returns the pool for records of attempts that go on. Their leases outlive the
// process by d, and its session in any case, though a third of their time may have passed
// since the last renewal: the record of a lost attempt is kept that long.
func newWork(sess *engine.Session, d time.Duration) *pool {
	return newPool(sess, max(d*3/2, 2*sess.TTL())+time.Second, 0)
}

func newPool(sess *engine.Session, ttl, window time.Duration) *pool {
	return &pool{sess: sess, ttl: ttl, window: window}
}

// class rounds a retention up, by less than a twentieth: durations that differ a little
// share leases.
func class(d time.Duration) time.Duration {
	s := math.Ceil(d.Seconds())
	if s <= 20 {
		return time.Duration(s) * time.Second
	}
	step := math.Pow(2, math.Floor(math.Log2(s/20)))
	return time.Duration(math.Ceil(s/step)*step) * time.Second
}

// take returns a lease for n more keys. It waits for a grant if there is none. It returns
// an error of etcd's or ctx's.
func (p *pool) take(ctx context.Context, n int) (*pooled, error) {
	for {
		p.mu.Lock()
		l, spare := p.pick(n)
		if l != nil {
			l.used += n
			l.live += n
		}
		if !spare && p.granting == nil {
			p.start()
		}
		granting := p.granting
		p.mu.Unlock()
		if l != nil {
			return l, nil
		}
		if granting == nil {
			return nil, ErrClosed
		}
		select {
		case <-granting:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		p.mu.Lock()
		err := p.failed
		p.mu.Unlock()
		if err != nil {
			return nil, err
		}
	}
}

// warm has a lease granted, if there is none.
func (p *pool) warm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l, _ := p.pick(1); l == nil && p.granting == nil {
		p.start()
	}
}

// pick chooses a lease, and tells whether there is enough for those who come next.
func (p *pool) pick(n int) (use *pooled, spare bool) {
	kept := p.leases[:0]
	for _, l := range p.leases {
		if l.gone {
			continue
		}
		if p.window > 0 && (aged(l.sent) >= p.window || l.used >= perLease) {
			continue
		}
		kept = append(kept, l)
		fits := l.used+n <= perLease || l.used == 0
		switch {
		case use == nil && fits:
			use = l
			spare = l.used+n <= perLease/2 && (p.window == 0 || aged(l.sent) < p.window*3/4)
		case fits:
			spare = true
		}
	}
	clear(p.leases[len(kept):])
	p.leases = kept
	return use, spare
}

// moment is a point in time by all clocks of the machine.
type moment = lease.Moment

func now() moment { return lease.Now() }

// aged returns how long ago that was, by the clock that says most.
func aged(t moment) time.Duration { return t.Age(now()) }

// start asks for a lease. The pool is locked.
func (p *pool) start() {
	done := make(chan struct{})
	p.granting = done
	ok := p.sess.Background(func() {
		sent := now()
		call, cancel := commit.Call(p.sess.Context())
		resp, err := p.sess.Client().Grant(call, int64(math.Ceil(p.ttl.Seconds())))
		cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.failed, p.granting = err, nil
		close(done)
		if err != nil {
			return
		}
		l := &pooled{id: resp.ID, sent: sent}
		p.leases = append(p.leases, l)
		if p.window == 0 {
			p.sess.Background(func() { p.renew(l) })
		} else {
			p.watchOver(l)
		}
	})
	if !ok {
		p.granting = nil
	}
}

// forget is for a lease that etcd does not know.
func (p *pool) forget(l *pooled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.gone = true
}

// give is for a key of an attempt that has ended. Left says that it is, or may be, still on
// the lease.
func (p *pool) give(l *pooled, left bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.live--
	if !left {
		l.used--
	}
}

// renew keeps a lease of a work pool alive, as long as the session is open, and ends it
// then if nothing hangs on it. One that is full of lost attempts is left to expire.
func (p *pool) renew(l *pooled) {
	ctx, client := p.sess.Context(), p.sess.Client()
	var pause commit.Backoff
	wait := p.ttl / 3
	for {
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			p.mu.Lock()
			idle := l.used == 0 && !l.gone
			p.mu.Unlock()
			if idle && client.Ctx().Err() == nil {
				call, cancel := context.WithTimeout(client.Ctx(), time.Second)
				_, _ = client.Revoke(call, l.id)
				cancel()
			}
			return
		}
		p.mu.Lock()
		l.gone = l.gone || l.live == 0 && l.used >= perLease
		gone := l.gone
		p.mu.Unlock()
		if gone {
			return
		}
		call, cancel := commit.Call(ctx)
		_, err := client.KeepAliveOnce(call, l.id)
		cancel()
		switch {
		case err == nil:
			wait = p.ttl / 3
			pause.Reset()
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			p.sess.Log().Warn("the lease of attempts in progress is gone", zap.Int64("lease", int64(l.id)))
			p.forget(l)
			return
		default:
			wait = 0
			if pause.Wait(ctx, nil) != nil {
				continue
			}
		}
	}
}
