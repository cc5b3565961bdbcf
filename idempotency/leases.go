package idempotency

import (
	"context"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/either"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/lease"
)

// perLease is how many keys are attached to one lease. When a lease expires, etcd deletes its keys in
// one step that blocks all writers, and it ends sixteen leases at a time: more keys would block them
// for longer (BenchmarkExpiry). With authentication on, etcd checks all keys of a lease at each Put
// to it.
const perLease = 100

// pool assigns leases to records. Many records share one lease; the next one is granted before the
// present one is used up, so only the first caller waits for a grant.
type pool struct {
	sess *engine.Session
	ttl  time.Duration // that is requested
	// window is how long after its grant a lease is assigned. 0 is as long as the session is
	// open: then the leases are renewed.
	window time.Duration

	mu       sync.Mutex
	leases   []*pooled
	granting int        // grants in flight
	began    moment     // when the latest of them was started
	waiting  []*awaited // callers for which there is no lease, in order of arrival
	arrived  int        // callers that have waited or wait
	spare    int        // for how many more keys there should be leases: see demand
	calm     int        // grants since a caller had to wait
	granted  []*pooled  // leases that have not ended, oldest first
	reaping  bool
}

// awaited is a caller that waits for a lease.
type awaited struct {
	n    int
	turn int           // its number, in order of arrival
	done chan struct{} // closed when one of the next two is set
	got  *pooled
	err  error
}

// pooled is one lease of a pool.
type pooled struct {
	id     clientv3.LeaseID
	sent   moment   // before the grant was sent
	used   int      // keys on it, at most: those of lost attempts may have moved
	live   int      // keys of attempts in progress in this process
	gone   bool     // it does not exist any more, or is left to expire
	kept   *keeping // of a lease of newWork
	ground *ground  // of its attempts, on the latest epoch, or nil
}

// newWork returns the pool for records of attempts in progress. Its leases outlive the process, and the attempts on them, by d,
// for the records of lost attempts, and its session in any case, even if a third of the TTL has passed
// since the last renewal.
func newWork(sess *engine.Session, d time.Duration) *pool {
	return &pool{sess: sess, ttl: max(d*3/2, 2*sess.TTL()) + time.Second}
}

// outlived returns by how much the records of a lease of newWork outlive their process or their attempts, at least, by its TTL.
func outlived(ttl time.Duration) time.Duration {
	return min(max(ttl-time.Second, 0)*2/3, maxDuration)
}

// grantedTo returns the TTL of a lease, or 0 if it does not exist. A leader that has been replaced and does not know it yet
// says that of a lease that was granted since; a renewal it refuses. So what counts is that a renewal does not find it.
func grantedTo(ctx context.Context, sess *engine.Session, id clientv3.LeaseID) (granted time.Duration, err error) {
	call, cancel := commit.Call(ctx)
	defer cancel()
	var seconds int64
	err = sess.LetIn(call, func() error {
		left, err := sess.Etcd().TimeToLive(call, id)
		if err == nil && left.TTL > 0 {
			seconds = left.GrantedTTL
			return nil
		}
		if err == nil {
			seconds, err = engine.RenewOnce(call, sess, id)
		}
		return err
	})
	return time.Duration(max(0, seconds)) * time.Second, err
}

// take returns a lease for n more keys, and waits for a grant if there is none. It returns an error of
// etcd's or ctx's.
func (p *pool) take(ctx context.Context, n int) (*pooled, error) { return p.takeAt(ctx, n, now()) }

// takeAt is take by a reading of the clocks that the caller has made just now.
func (p *pool) takeAt(ctx context.Context, n int, at moment) (*pooled, error) {
	l, w := p.assign(n, at)
	switch {
	case l != nil:
		return l, nil
	case w == nil:
		return nil, ErrClosed
	}
	if p.await(ctx, w) {
		return w.got, w.err
	}
	p.mu.Lock()
	p.waiting = slices.DeleteFunc(p.waiting, func(o *awaited) bool { return o == w })
	p.mu.Unlock()
	if w.got != nil {
		p.giveAll(w.got, n, 0)
	}
	return nil, ctx.Err()
}

// grantIsLate is after how long a caller that waits has a further lease granted: one request may hang while etcd answers others.
const grantIsLate = time.Second

// await waits until w has its lease or its error, and reports whether it has before ctx ends.
func (p *pool) await(ctx context.Context, w *awaited) bool {
	late := time.NewTicker(grantIsLate)
	defer late.Stop()
	a, b, c := either.All(ctx)
	for {
		select {
		case <-w.done:
			return true
		case <-late.C:
			p.another()
		case <-a:
			return false
		case <-b:
			return false
		case <-c:
			return false
		}
	}
}

// another starts a grant, for callers that wait, if the latest one is late.
func (p *pool) another() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) > 0 && p.granting < grantsAtOnce && aged(p.began) >= grantIsLate {
		p.start()
	}
}

// assign returns a lease for n more keys, or a place in the queue for one; neither, if the session is closed.
func (p *pool) assign(n int, at moment) (*pooled, *awaited) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) == 0 {
		if l, room := p.pick(n, at); l != nil {
			l.used += n
			l.live += n
			if room < p.demand() && p.granting == 0 {
				p.start()
			}
			return l, nil
		}
	}
	w := &awaited{n: n, turn: p.arrived, done: make(chan struct{})}
	p.waiting = append(p.waiting, w)
	p.arrived++
	if len(p.granted)+len(p.leases) > 0 { // not the first ones
		p.spare, p.calm = min(2*p.demand(), mostSpare), 0
	}
	if p.more(); p.granting == 0 {
		p.waiting = nil
		return nil, nil
	}
	return nil, w
}

// mostSpare bounds demand.
const mostSpare = 8 * perLease

// demand is for how many keys there should be room after each caller: for half a lease, and for twice as many each time
// that a caller had to wait, until sixteen grants in a row were in time.
func (p *pool) demand() int { return max(p.spare, perLease/2) }

// more starts as many grants as those that wait need, up to four at a time. The caller holds mu.
func (p *pool) more() {
	if p.granting >= grantsAtOnce {
		return
	}
	needed := 0
	for _, w := range p.waiting {
		needed += w.n
	}
	for p.granting < min(grantsAtOnce, (needed+p.spare+perLease-1)/perLease) {
		if before := p.granting; p.start() == before {
			return
		}
	}
}

const grantsAtOnce = 4

// serve gives those that wait their leases, in order of arrival, and orders more if there are not enough. The caller holds mu.
func (p *pool) serve() {
	if len(p.waiting) == 0 {
		return
	}
	for at := now(); len(p.waiting) > 0; {
		w := p.waiting[0]
		l, _ := p.pick(w.n, at)
		if l == nil {
			if p.more(); p.granting == 0 {
				p.failed(ErrClosed, p.arrived)
			}
			return
		}
		l.used += w.n
		l.live += w.n
		w.got = l
		close(w.done)
		p.waiting = p.waiting[1:]
	}
}

// warm starts a grant if there is no lease, and does not wait for it.
func (p *pool) warm(at moment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l, _ := p.pick(1, at); l == nil && p.granting == 0 {
		p.start()
	}
}

// pick chooses a lease for n more keys, and returns for how many more there is room then. The caller holds mu.
func (p *pool) pick(n int, at moment) (use *pooled, room int) {
	kept := p.leases[:0]
	for _, l := range p.leases {
		fits := l.used+n <= perLease || l.used == 0
		if !l.gone && (use != nil || p.window == 0 && !fits) { // how old it is matters when it is its turn
			kept, room = append(kept, l), room+max(0, perLease-l.used)
			continue
		}
		if l.gone || !l.kept.trustedAt(at) || p.window > 0 && (l.sent.Age(at) >= p.window || l.used >= perLease) {
			continue
		}
		kept = append(kept, l)
		if !fits || !l.kept.fresh(at) {
			continue
		}
		use = l
		if p.window == 0 || l.sent.Age(at) < p.window*3/4 {
			room += perLease - l.used - n
		}
	}
	clear(p.leases[len(kept):])
	p.leases = kept
	return use, room
}

// moment is a point in time by all clocks of the machine.
type moment = lease.Moment

func now() moment { return lease.Now() }

// aged returns how long ago that was, by the clock that has advanced most.
func aged(t moment) time.Duration { return t.Age(now()) }

// start requests a lease, and returns how many grants are in flight then. The caller holds mu.
func (p *pool) start() int {
	if p.sess.Background(p.grant) {
		p.granting++
		p.began = now()
	}
	return p.granting
}

// grant has a lease granted. The request is repeated until etcd answers it, as long as the session is open: its bound and that
// of the callers that wait are not the same.
func (p *pool) grant() {
	ctx, g := p.sess.Context(), engine.NewGrant(p.sess)
	var sent moment
	var before int // how many callers had come when it was sent
	granted, err := commit.Read(ctx, func(call context.Context) (time.Duration, error) {
		p.mu.Lock()
		sent, before = now(), p.arrived
		p.mu.Unlock()
		return g.Ask(call, p.ttl)
	})
	if err != nil {
		g.Leave()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.granting--
	switch {
	case ctx.Err() != nil && err != nil:
		p.failed(ErrClosed, p.arrived)
		return
	case err != nil:
		p.failed(err, before)
		return
	}
	if p.calm++; p.calm >= 16 {
		p.spare, p.calm = p.spare/2, 0
	}
	l := &pooled{id: g.ID, sent: sent}
	p.leases = append(p.leases, l)
	if p.window == 0 {
		l.kept = newKeeping(sent, granted, marginOf(granted, p.sess.TTL(), p.sess.Margin()))
		p.sess.Later(func(ctx context.Context) { p.renew(ctx, l) })
	} else {
		p.watchOver(l)
	}
	p.serve()
}

// failed gives the error of a grant to the first callers, that many in all, that still wait. It says nothing to those that came
// after the grant was sent: for them another one is started. The caller holds mu.
func (p *pool) failed(err error, before int) {
	for len(p.waiting) > 0 && p.waiting[0].turn < before {
		w := p.waiting[0]
		w.err = err
		close(w.done)
		p.waiting = p.waiting[1:]
	}
	p.serve()
}

// forget removes a lease that does not exist in etcd.
func (p *pool) forget(l *pooled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.gone = true
}

// give returns the place of a key whose attempt has ended. left says that the key is, or may be, still
// on the lease.
func (p *pool) give(l *pooled, left bool) {
	if left {
		p.giveAll(l, 1, 1)
	} else {
		p.giveAll(l, 1, 0)
	}
}

// giveAll is give for n keys, of which so many are left, or may be.
func (p *pool) giveAll(l *pooled, n, left int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.live -= n
	if left == n {
		return
	}
	l.used -= n - left
	if p.window > 0 && !slices.Contains(p.leases, l) { // it was full: see pick
		p.leases = append(p.leases, l)
	}
	p.serve()
}

// assigns reports whether a lease is still assigned, whatever is on it.
func (p *pool) assigns(l *pooled, at moment) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !l.gone && l.sent.Age(at) < p.window
}
