package concurrency

import (
	"container/list"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdkit/etcdkit/internal/crowd"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/queue"
)

// localQueue is the calls of one process that wait for permits of a semaphore with Handover, in their
// order. They have no requests of their own in etcd: a few fetches have, up to the limit, and each permit
// that a fetch gets goes to the first of the calls.
type localQueue struct {
	length atomic.Int64 // of waiting

	mu      sync.Mutex
	waiting list.List // of *localCall
	fetches []*fetch  // oldest first
	most    int       // the greatest length since a time that trim counts from
	trims   bool      // trim is due
}

// localCall is one call that waits.
type localCall struct {
	ctx     context.Context
	maxHold time.Duration
	source  source
	place   *list.Element // nil once it has left the local queue
	got     chan grant
}

// grant is the end of a wait.
type grant struct {
	permit *Permit
	err    error
}

// fetch is one request in etcd for whichever call is first in the local queue when it is admitted.
type fetch struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	before atomic.Pointer[queue.Full] // what was before it when it was written
	ended  chan struct{}              // closed when its request is used or is being removed
}

// errSurplus ends a fetch that no call needs.
var errSurplus = errors.New("no call waits for it any more")

// waitsLocally reports whether a call waits in the local queue.
func (a *attempt) waitsLocally() bool {
	return a.keeper != nil && a.keeper.handover > 0 && !a.Bounded && a.fetch == nil
}

// wait is attempt.within in the local queue.
func (k *keeper) wait(ctx context.Context, a *attempt) (*Permit, error) {
	q := k.queue
	e, err := q.sess.Live(ctx)
	if err != nil {
		return nil, err
	}
	if end, ok := ctx.Deadline(); ok {
		defer e.ProbeBefore(end)()
	}
	w := &localCall{ctx: ctx, maxHold: a.MaxHold, source: a.source, got: make(chan grant, 1)}
	k.join(w, a)
	if now := k.now(); k.isQuiet(now) { // something may have become idle since the call looked
		k.offer(now)
	}
	var g grant
	select {
	case g = <-w.got:
	case <-ctx.Done():
		g.err = ctx.Err()
	case <-q.sess.Accepting().Done():
		g.err = ErrClosed
	}
	if g.permit != nil {
		return g.permit, nil
	}
	if p := k.leave(w); p != nil { // granted at that moment
		return p, nil
	}
	if ctx.Err() != nil && errors.Is(g.err, ctx.Err()) {
		if full := k.behind(); full != nil {
			return nil, &queue.WaitEnd{Full: full}
		}
	}
	return nil, g.err
}

// behind describes the queue in etcd before the local one: as a fetch sees it that follows it whole, and
// otherwise what etcd has counted when the oldest fetch was written. It is nil if etcd has answered no fetch.
func (k *keeper) behind() *queue.Full {
	q, l := k.queue, &k.local
	l.mu.Lock()
	defer l.mu.Unlock()
	var found *queue.Full
	for _, f := range l.fetches {
		if before := f.before.Load(); before != nil {
			copied := *before
			found = &copied
			break
		}
	}
	if found != nil && q.Crowd.Mode() == crowd.Whole { // the fetch follows the queue
		m := q.View.Join()
		defer m.Leave()
		if b, _ := m.Brief("", 0, 0); b.Revision > 0 {
			seen := q.Full(b)
			seen.Waiting = max(0, seen.Waiting-len(l.fetches)) // which are for this call, too
			return seen
		}
	}
	return found
}

// join adds a call to the local queue.
func (k *keeper) join(w *localCall, a *attempt) {
	l := &k.local
	l.mu.Lock()
	defer l.mu.Unlock()
	w.place = l.waiting.PushBack(w)
	l.most = max(l.most, l.waiting.Len())
	l.length.Add(1)
	k.startFetches(a)
	k.trimLater()
}

// offer gives what is idle to the calls in the local queue.
func (k *keeper) offer(now time.Duration) {
	for _, c := range *k.keys.Load() {
		if k.local.length.Load() == 0 {
			return
		}
		p := &Permit{queue: k.queue}
		if c.holder.Load() == nil && c.assign(context.Background(), nil, p, now) && c.vacate(p) && !k.pass(c, p, now) {
			c.drop(p)
		}
	}
}

// startFetches starts fetches for the calls in the local queue. l.mu is held.
func (k *keeper) startFetches(a *attempt) {
	l := &k.local
	for len(l.fetches) < l.needs(l.waiting.Len(), k.limitOr(a.limit)) {
		f := &fetch{ended: make(chan struct{})}
		f.ctx, f.cancel = context.WithCancelCause(k.queue.sess.Accepting())
		of := &attempt{queue: k.queue, request: request{doing: a.doing, Request: queue.Request{Weight: 1}}, terms: a.terms, caller: f.ctx, begun: time.Now(), fetch: f}
		if !k.queue.sess.Background(func() { k.runFetch(f, of) }) {
			return
		}
		l.fetches = append(l.fetches, f)
	}
}

// needs returns how many fetches so many calls need, under a limit.
func (l *localQueue) needs(calls int, limit int64) int { return min(calls, int(max(1, limit))) }

// limitOr returns the limit that the session has seen, or the one that is asked for.
func (k *keeper) limitOr(asked int64) int64 {
	if k.queue.Limit.Seen() == nil {
		return asked
	}
	return k.limit()
}

// runFetch is the life of a fetch.
func (k *keeper) runFetch(f *fetch, a *attempt) {
	defer f.cancel(nil)
	defer close(f.ended)
	p, err := a.within(f.ctx)
	l := &k.local
	l.mu.Lock()
	l.fetches = slices.DeleteFunc(l.fetches, func(o *fetch) bool { return o == f })
	if first := l.waiting.Front(); err != nil && context.Cause(f.ctx) != errSurplus && first != nil {
		l.remove(first) <- grant{err: err}
	}
	l.mu.Unlock()
	if err == nil {
		k.deliver(p)
	}
	l.mu.Lock()
	k.startFetches(a)
	l.mu.Unlock()
}

// remove removes a call, and returns what it waits on. l.mu is held.
func (l *localQueue) remove(at *list.Element) chan<- grant {
	w := l.waiting.Remove(at).(*localCall)
	w.place = nil
	l.length.Add(-1)
	return w.got
}

// leave ends the wait of a call. It returns the permit that the call was granted meanwhile, or nil.
func (k *keeper) leave(w *localCall) *Permit {
	l := &k.local
	l.mu.Lock()
	waits := w.place != nil
	if waits {
		l.remove(w.place)
		k.trimLater()
	}
	l.mu.Unlock()
	if waits {
		return nil
	}
	select {
	case g := <-w.got:
		return g.permit
	default: // its error was taken from there
		return nil
	}
}

// deliver is for the permit of a fetch: the first call in the local queue gets it, or it stays, or it is
// released.
func (k *keeper) deliver(p *Permit) {
	now, c := k.now(), p.kept
	if !c.vacate(p) { // lost, and so is its key
		p.workEnded()
		return
	}
	if !k.pass(c, p, now) && !(c.idleness(now, 0).stays(k.keep) && c.setIdle(p, now)) {
		c.drop(p)
	}
}

// pass gives a key to the first call in the local queue.
func (k *keeper) pass(c *keptKey, from *Permit, now time.Duration) bool {
	l := &k.local
	if l.length.Load() == 0 {
		return false
	}
	at := c.idleness(now, 0)
	k.limit()
	at.lowered = k.lowered.Load() != c.lowered
	if at.lowered {
		l.mu.Lock()
		k.trimLater() // fetches above the new limit
		l.mu.Unlock()
	}
	if !at.passes(k.handover, k.keep) || k.queue.View.Gone(c.ticket.Key, c.ticket.Token) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.waiting.Front()
	if first == nil {
		return false
	}
	w := first.Value.(*localCall)
	p := &Permit{queue: k.queue, maxHold: w.maxHold, source: w.source}
	if !c.assign(w.ctx, from, p, now) { // it was evicted or lost meanwhile
		return false
	}
	p.bound()
	l.remove(first) <- grant{permit: p}
	k.trimLater()
	return true
}

// surplusStays is how long a fetch that no call needs stays in the queue at most: a call that comes meanwhile
// needs no new one, but until then the fetch counts as a waiting request.
const surplusStays = keepIdle

// withdrawSurplus withdraws the fetches that no call needs, and returns when their requests are being
// removed: they are no reason to refuse a call of this process that does not wait.
func (k *keeper) withdrawSurplus(ctx context.Context) (any bool) {
	l := &k.local
	l.mu.Lock()
	surplus := slices.Clone(l.fetches[min(len(l.fetches), l.needs(l.waiting.Len(), k.limitOr(math.MaxInt32))):])
	l.mu.Unlock()
	for _, f := range surplus {
		f.cancel(errSurplus)
	}
	for _, f := range surplus {
		select {
		case <-f.ended:
		case <-ctx.Done():
			return true
		}
	}
	return len(surplus) > 0
}

// limit returns the newest limit that the session has seen, and counts how often it was lowered. Whatever
// way its requests wait, one of these follows it.
func (k *keeper) limit() int64 {
	q := k.queue
	n, rev := limit.SeenN(q.Limit), int64(0)
	if l := q.Limit.Seen(); l != nil {
		rev = l.Revs.Own
	}
	for _, m := range []*mirror.Shared{q.View, q.Crowd.Front} {
		if l := m.Limit(); l.Rev > rev {
			n, rev = l.Limit.Limit, l.Rev
		}
	}
	if n < k.seen.Swap(n) {
		k.lowered.Add(1)
	}
	return n
}

// trimLater has fetches withdrawn that the local queue does not need or the limit does not admit, unless it needs
// them soon. l.mu is held.
func (k *keeper) trimLater() {
	l := &k.local
	if l.trims || len(l.fetches) <= l.needs(l.waiting.Len(), k.limitOr(math.MaxInt32)) {
		return
	}
	l.trims, l.most = true, l.waiting.Len()
	time.AfterFunc(min(max(k.handover, keepLook), surplusStays), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.trims = false
		for _, f := range l.fetches[min(len(l.fetches), l.needs(l.most, k.limitOr(math.MaxInt32))):] {
			f.cancel(errSurplus)
		}
		k.trimLater()
	})
}
