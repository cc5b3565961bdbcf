package concurrency

import (
	"container/list"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
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
}

// errSurplus ends a bid that no call in line needs.
var errSurplus = errors.New("no call waits for it any more")

// hands reports whether a request waits in line.
func (r *request) hands() bool {
	return r.keeper != nil && r.keeper.handover > 0 && !r.bounded && !r.bid
}

// wait is acquireWithin in line.
func (k *keeper) wait(ctx context.Context, r request, begun time.Time) (*Permit, error) {
	q := k.queue
	e, err := q.sess.Live(ctx)
	if err != nil {
		return nil, err
	}
	if end, ok := ctx.Deadline(); ok {
		defer e.ProbeBefore(end)()
	}
	w := &inLine{ctx: ctx, maxHold: r.maxHold, source: r.source, got: make(chan grant, 1)}
	k.join(w, &r)
	var g grant
	select {
	case g = <-w.got:
	case <-ctx.Done():
		g.err = ctx.Err()
	case <-q.sess.Accepting().Done():
		g.err = ErrClosed
	}
	if g.permit != nil {
		call(q.own.trace.Acquired, AcquireInfo{Name: q.name, Token: g.permit.token, Weight: 1, Waited: time.Since(begun)})
		return g.permit, nil
	}
	k.leave(w)
	if ctx.Err() != nil && errors.Is(g.err, ctx.Err()) {
		m := q.view.Join()
		defer m.Leave()
		return nil, q.waitEnded(ctx, q.seen(m.Mirror, &ticket{queue: q, request: r}))
	}
	return nil, g.err
}

// join adds a call to the line.
func (k *keeper) join(w *inLine, r *request) {
	l := &k.line
	l.mu.Lock()
	defer l.mu.Unlock()
	w.place = l.waiting.PushBack(w)
	l.most = max(l.most, l.waiting.Len())
	l.length.Add(1)
	k.ask(r)
}

// ask starts bids for the calls in line. l.mu is held.
func (k *keeper) ask(r *request) {
	l, limit := &k.line, r.limit
	if seen := k.queue.limit.Seen(); seen != nil {
		limit = seen.N
	}
	for len(l.bids) < min(l.waiting.Len(), int(max(1, limit))) {
		b := &bid{}
		b.ctx, b.cancel = context.WithCancelCause(k.queue.sess.Accepting())
		of := request{doing: r.doing, weight: 1, limit: r.limit, prepare: r.prepare, keeper: k, bid: true}
		if !k.queue.sess.Background(func() { k.run(b, of) }) {
			return
		}
		l.bids = append(l.bids, b)
	}
}

// run is the life of a bid.
func (k *keeper) run(b *bid, r request) {
	defer b.cancel(nil)
	p, err := k.queue.acquireWithin(b.ctx, r, time.Now())
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
	k.ask(&r)
	l.mu.Unlock()
}

// take takes a call from the line, and returns what it waits on. l.mu is held.
func (l *line) take(at *list.Element) chan<- grant {
	w := l.waiting.Remove(at).(*inLine)
	w.place = nil
	l.length.Add(-1)
	return w.got
}

// leave ends the wait of a call that needs no permit any more. If it was granted one meanwhile, the
// next call in line has it.
func (k *keeper) leave(w *inLine) {
	l := &k.line
	l.mu.Lock()
	waits := w.place != nil
	if waits {
		l.take(w.place)
		k.trimLater()
	}
	l.mu.Unlock()
	if waits {
		return
	}
	select {
	case g := <-w.got:
		if g.permit != nil {
			k.settle(g.permit)
		}
	default: // its error was taken from there
	}
}

// settle is for a permit that has no caller: the first call in line has it, or it stays, or it is
// released.
func (k *keeper) settle(p *Permit) {
	now, c := k.now(), p.kept
	if !k.pass(c, p, now) && !(c.at(now, 0).stays(k.keep) && c.rest(p, now)) {
		c.drop(p)
	}
}

// pass gives a key to the first call in line.
func (k *keeper) pass(c *kept, from *Permit, now time.Duration) bool {
	l := &k.line
	if l.length.Load() == 0 || !c.at(now, 0).passes(k.handover) {
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
	l.take(first) <- grant{permit: p}
	k.trimLater()
	return true
}

// trimLater has bids withdrawn that the line does not need, unless it needs them soon. l.mu is held.
func (k *keeper) trimLater() {
	l := &k.line
	if l.trims || len(l.bids) <= l.waiting.Len() {
		return
	}
	l.trims, l.most = true, l.waiting.Len()
	time.AfterFunc(max(k.handover, keepLook), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.trims = false
		for _, b := range l.bids[min(len(l.bids), l.most):] {
			b.cancel(errSurplus)
		}
		k.trimLater()
	})
}
