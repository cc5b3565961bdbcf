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

// line is the calls of one process that wait for permits of a semaphore with Handover, in their
// order. They have no requests of their own in etcd: a few bids have, up to the limit, and each permit
// that a bid gets goes to the first call in line.
type line struct {
	length atomic.Int64 // of waiting

	mu      sync.Mutex
	waiting list.List // of *inLine
	bids    []*bid    // oldest first
	most    int       // the greatest length since a time that trim counts from
	trims   bool      // trim is due
}

// inLine is one call that waits.
type inLine struct {
	ctx     context.Context
	maxHold time.Duration
	source  source
	place   *list.Element // nil once it has left the line
	got     chan grant
}

// grant is the end of a wait.
type grant struct {
	permit *Permit
	err    error
}

// bid is one request in etcd for whichever call is first in line when it is admitted.
type bid struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	before atomic.Pointer[queue.Full] // what was before it when it was written
	ended  chan struct{}              // closed when its request is used or is being removed
}

// errSurplus ends a bid that no call in line needs.
var errSurplus = errors.New("no call waits for it any more")

// hands reports whether a call waits in line.
func (a *attempt) hands() bool {
	return a.keeper != nil && a.keeper.handover > 0 && !a.Bounded && a.bid == nil
}

// wait is attempt.within in line.
func (k *keeper) wait(ctx context.Context, a *attempt) (*Permit, error) {
	q := k.queue
	e, err := q.sess.Live(ctx)
	if err != nil {
		return nil, err
	}
	if end, ok := ctx.Deadline(); ok {
		defer e.ProbeBefore(end)()
	}
	w := &inLine{ctx: ctx, maxHold: a.MaxHold, source: a.source, got: make(chan grant, 1)}
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

// behind describes the queue before the line: as a bid sees it that follows the whole queue, and
// otherwise what etcd has counted when the oldest bid was written. It is nil if etcd has answered no bid.
func (k *keeper) behind() *queue.Full {
	q, l := k.queue, &k.line
	l.mu.Lock()
	defer l.mu.Unlock()
	var found *queue.Full
	for _, b := range l.bids {
		if before := b.before.Load(); before != nil {
			copied := *before
			found = &copied
			break
		}
	}
	if found != nil && q.Crowd.Mode() == crowd.Whole { // the bid follows the queue
		m := q.View.Join()
		defer m.Leave()
		if b, _ := m.Brief("", 0, 0); b.Revision > 0 {
			seen := q.Full(b)
			seen.Waiting = max(0, seen.Waiting-len(l.bids)) // which are for this call, too
			return seen
		}
	}
	return found
}

// join adds a call to the line.
func (k *keeper) join(w *inLine, a *attempt) {
	l := &k.line
	l.mu.Lock()
	defer l.mu.Unlock()
	w.place = l.waiting.PushBack(w)
	l.most = max(l.most, l.waiting.Len())
	l.length.Add(1)
	k.ask(a)
	k.trimLater()
}

// offer gives what is idle to the calls in line.
func (k *keeper) offer(now time.Duration) {
	for _, c := range *k.cells.Load() {
		if k.line.length.Load() == 0 {
			return
		}
		p := &Permit{queue: k.queue}
		if c.holder.Load() == nil && c.give(context.Background(), nil, p, now) && c.vacate(p) && !k.pass(c, p, now) {
			c.drop(p)
		}
	}
}

// ask starts bids for the calls in line. l.mu is held.
func (k *keeper) ask(a *attempt) {
	l := &k.line
	for len(l.bids) < l.needs(l.waiting.Len(), k.room(a.limit)) {
		b := &bid{ended: make(chan struct{})}
		b.ctx, b.cancel = context.WithCancelCause(k.queue.sess.Accepting())
		of := &attempt{queue: k.queue, request: request{doing: a.doing, Request: queue.Request{Weight: 1}}, terms: a.terms, caller: b.ctx, begun: time.Now(), bid: b}
		if !k.queue.sess.Background(func() { k.run(b, of) }) {
			return
		}
		l.bids = append(l.bids, b)
	}
}

// needs returns how many bids so many calls need, under a limit.
func (l *line) needs(calls int, limit int64) int { return min(calls, int(max(1, limit))) }

// room returns the limit that the session has seen, or the one that is asked for.
func (k *keeper) room(asked int64) int64 {
	if k.queue.Limit.Seen() == nil {
		return asked
	}
	return k.limit()
}

// run is the life of a bid.
func (k *keeper) run(b *bid, a *attempt) {
	defer b.cancel(nil)
	defer close(b.ended)
	p, err := a.within(b.ctx)
	l := &k.line
	l.mu.Lock()
	l.bids = slices.DeleteFunc(l.bids, func(o *bid) bool { return o == b })
	if first := l.waiting.Front(); err != nil && context.Cause(b.ctx) != errSurplus && first != nil {
		l.take(first) <- grant{err: err}
	}
	l.mu.Unlock()
	if err == nil {
		k.settle(p)
	}
	l.mu.Lock()
	k.ask(a)
	l.mu.Unlock()
}

// take takes a call from the line, and returns what it waits on. l.mu is held.
func (l *line) take(at *list.Element) chan<- grant {
	w := l.waiting.Remove(at).(*inLine)
	w.place = nil
	l.length.Add(-1)
	return w.got
}

// leave ends the wait of a call. It returns the permit that the call was granted meanwhile, or nil.
func (k *keeper) leave(w *inLine) *Permit {
	l := &k.line
	l.mu.Lock()
	waits := w.place != nil
	if waits {
		l.take(w.place)
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

// settle is for the permit of a bid: the first call in line has it, or it stays, or it is released.
func (k *keeper) settle(p *Permit) {
	now, c := k.now(), p.kept
	if !c.vacate(p) { // lost, and so is its key
		p.workEnded()
		return
	}
	if !k.pass(c, p, now) && !(c.at(now, 0).stays(k.keep) && c.rest(p, now)) {
		c.drop(p)
	}
}

// pass gives a key to the first call in line.
func (k *keeper) pass(c *kept, from *Permit, now time.Duration) bool {
	l := &k.line
	if l.length.Load() == 0 {
		return false
	}
	at := c.at(now, 0)
	k.limit()
	at.lowered = k.lowered.Load() != c.lowered
	if at.lowered {
		l.mu.Lock()
		k.trimLater() // bids above the new limit
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
	w := first.Value.(*inLine)
	p := &Permit{queue: k.queue, maxHold: w.maxHold, source: w.source}
	if !c.give(w.ctx, from, p, now) { // it was evicted or lost meanwhile
		return false
	}
	p.bound()
	l.take(first) <- grant{permit: p}
	k.trimLater()
	return true
}

// bidsStay is how long a bid stays in the queue that no call in line needs, at most: a call that comes
// meanwhile needs no new one, but until then the bid counts as a waiting request.
const bidsStay = keepIdle

// shed withdraws the bids that no call in line needs, and returns when their requests are being removed:
// they are no reason to refuse a call of this process that does not wait.
func (k *keeper) shed(ctx context.Context) (any bool) {
	l := &k.line
	l.mu.Lock()
	surplus := slices.Clone(l.bids[min(len(l.bids), l.needs(l.waiting.Len(), k.room(math.MaxInt32))):])
	l.mu.Unlock()
	for _, b := range surplus {
		b.cancel(errSurplus)
	}
	for _, b := range surplus {
		select {
		case <-b.ended:
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

// trimLater has bids withdrawn that the line does not need or the limit does not admit, unless it needs
// them soon. l.mu is held.
func (k *keeper) trimLater() {
	l := &k.line
	if l.trims || len(l.bids) <= l.needs(l.waiting.Len(), k.room(math.MaxInt32)) {
		return
	}
	l.trims, l.most = true, l.waiting.Len()
	time.AfterFunc(min(max(k.handover, keepLook), bidsStay), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.trims = false
		for _, b := range l.bids[min(len(l.bids), l.needs(l.most, k.room(math.MaxInt32))):] {
			b.cancel(errSurplus)
		}
		k.trimLater()
	})
}
