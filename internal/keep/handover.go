package keep

import (
	"container/list"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/engine"
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
	grants  []*fetch  // whose permits are being delivered
	last    answered  // of the fetch before them, while calls wait
	most    int       // the greatest length since a time that trim counts from
	trims   bool      // trim is due
}

// localCall is one call that waits.
type localCall struct {
	ctx    context.Context
	holder *Holder
	place  *list.Element // nil once it has left the local queue
	got    chan error    // has the end of the wait: nil if the holder has a key
}

// fetch is one request in etcd for whichever call is first in the local queue when it is admitted.
type fetch struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	before atomic.Pointer[queue.Full] // what was before it when it was written
	ended  chan struct{}              // closed when its request is used or is being removed
	owed   []error                    // of fetches that failed meanwhile and ended no call: calls end by them if it fails, too
}

// answered is what etcd has answered last to a fetch that had to wait.
type answered struct {
	before *queue.Full      // or nil
	lease  clientv3.LeaseID // of the session then
}

// errSurplus ends a fetch that no call needs.
var errSurplus = errors.New("no call waits for it any more")

// Waiting returns how many calls wait in the local queue.
func (k *Keeper) Waiting() int { return int(k.local.length.Load()) }

// Wait waits in the local queue until a new permit has a key. If ctx ends that, it returns a *queue.WaitEnd, as far as
// etcd has answered what is before the call.
func (k *Keeper) Wait(ctx context.Context, permit *Holder) error {
	e, err := k.Session.Live(ctx)
	if err != nil {
		return err
	}
	if end, ok := ctx.Deadline(); ok {
		defer e.ProbeBefore(end)()
	}
	w := &localCall{ctx: ctx, holder: permit, got: make(chan error, 1)}
	k.join(w)
	if now := k.now(); k.isQuiet(now) { // something may have become idle since the call looked
		k.offer(now)
	}
	select {
	case err = <-w.got:
	case <-ctx.Done():
		err = k.leave(w, ctx.Err())
	case <-k.Session.Accepting().Done():
		err = k.leave(w, engine.ErrClosed)
	}
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		if full := k.behind(); full != nil {
			return full.Ends(1)
		}
	}
	return err
}

// behind describes the queue in etcd before the local one: as a fetch sees it that follows it whole, and
// otherwise what etcd has counted when the oldest fetch was written, or, while that is under way, the fetch before it.
// It is nil if etcd has answered none.
func (k *Keeper) behind() *queue.Full {
	l := &k.local
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.IndexFunc(l.fetches, func(f *fetch) bool { return f.before.Load() != nil })
	if at < 0 {
		if l.last.before != nil && l.last.lease == k.Session.Lease() {
			return l.last.before
		}
		return nil
	}
	if seen := k.Queue.Followed(); seen != nil {
		seen.Waiting = max(0, seen.Waiting-len(l.fetches)) // which are for this call, too
		return seen
	}
	return l.fetches[at].before.Load()
}

// join adds a call to the local queue.
func (k *Keeper) join(w *localCall) {
	l := &k.local
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting.Len() == 0 {
		l.last = answered{} // it may be old
	}
	w.place = l.waiting.PushBack(w)
	l.most = max(l.most, l.waiting.Len())
	l.length.Add(1)
	k.startFetches()
	k.trimLater()
}

// offer gives what is idle to the calls in the local queue.
func (k *Keeper) offer(now time.Duration) {
	for _, c := range *k.keys.Load() {
		if k.Waiting() == 0 {
			return
		}
		if c.holder.CompareAndSwap(nil, passing) && !k.pass(c, passing, now) {
			c.drop(passing)
		}
	}
}

// startFetches starts fetches for the calls in the local queue. l.mu is held.
func (k *Keeper) startFetches() {
	l := &k.local
	for len(l.fetches) < l.needs(l.waiting.Len(), k.limitOr(k.Wanted)) {
		f := &fetch{ended: make(chan struct{})}
		f.ctx, f.cancel = context.WithCancelCause(k.Session.Accepting())
		if !k.Session.Callback(func() { k.runFetch(f) }) {
			return
		}
		l.fetches = append(l.fetches, f)
	}
}

// needs returns how many fetches so many calls need, under a limit.
func (l *localQueue) needs(calls int, limit int64) int { return min(calls, int(max(1, limit))) }

// limitOr returns the limit that the session has seen, or else another one.
func (k *Keeper) limitOr(other int64) int64 {
	if k.Queue.Limit.Seen() == nil {
		return other
	}
	return k.Limit()
}

// runFetch is the life of a fetch. If it fails and ends no call, the next fetches start when another one ends: the reason may last.
// A request that has waited and is gone, by an operator for instance, is replaced at once.
func (k *Keeper) runFetch(f *fetch) {
	defer f.cancel(nil)
	defer close(f.ended)
	h, err := k.Fetch(f.ctx, f.before.Store)
	l := &k.local
	l.mu.Lock()
	l.fetches = slices.DeleteFunc(l.fetches, func(o *fetch) bool { return o == f })
	l.last = answered{f.before.Load(), k.Session.Lease()}
	if err == nil {
		l.grants = append(l.grants, f)
	}
	if err != nil && context.Cause(f.ctx) != errSurplus && !l.fail(f, err) && f.before.Load() == nil {
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	if err == nil {
		k.deliver(h)
	}
	l.mu.Lock()
	l.grants = slices.DeleteFunc(l.grants, func(o *fetch) bool { return o == f })
	k.startFetches()
	l.mu.Unlock()
}

// fail is for a fetch that has failed. It ends the first call, unless another fetch is being delivered or is under way: that is for
// the same call. If the other one fails, too, a call ends by each of the errors, whatever is under way by then: an error that
// lasts reaches each call, however many come. What etcd has queued since may end hours later, for another reason. It reports
// whether it has ended calls. l.mu is held.
func (l *localQueue) fail(f *fetch, err error) (ends bool) {
	if f.before.Load() != nil {
		f.owed = nil
	}
	if len(f.owed) == 0 && len(l.grants)+len(l.fetches) > 0 {
		other := slices.IndexFunc(l.fetches, func(o *fetch) bool { return o.before.Load() == nil })
		if len(l.grants) == 0 && other >= 0 {
			l.fetches[other].owed = append(l.fetches[other].owed, err)
		}
		return false
	}
	for _, end := range append(f.owed, err) {
		if first := l.waiting.Front(); first != nil {
			l.remove(first, end)
		}
	}
	return true
}

// remove removes a call whose wait has ended. l.mu is held.
func (l *localQueue) remove(at *list.Element, end error) {
	w := l.waiting.Remove(at).(*localCall)
	w.place = nil
	l.length.Add(-1)
	w.got <- end
}

// leave ends the wait of a call for that reason. It returns nil if the call was granted a permit meanwhile.
func (k *Keeper) leave(w *localCall, why error) error {
	l := &k.local
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.place != nil {
		l.remove(w.place, why)
		k.trimLater()
	}
	if err := <-w.got; err == nil {
		return nil
	}
	return why
}

// deliver is for the permit of a fetch: the first call in the local queue gets its key, or that stays, or it is
// released.
func (k *Keeper) deliver(h *Holder) {
	now, c := k.now(), h.key
	if !h.Permit.Vacate(c.released) { // lost, and so is its key
		k.Ended()
		return
	}
	stays := h.seal() // otherwise it was asked to stop, and is released as by any holder
	if !stays || !k.pass(c, h, now) && !(c.idleness(now, 0).stays(k.Keep) && c.setIdle(h, now)) {
		c.drop(h)
	}
}

// pass gives a key to the first call in the local queue.
func (k *Keeper) pass(c *Key, from *Holder, now time.Duration) bool {
	l := &k.local
	if k.Waiting() == 0 {
		return false
	}
	at := c.idleness(now, 0)
	k.Limit()
	at.lowered = k.lowered.Load() != c.lowered
	if at.lowered {
		l.mu.Lock()
		k.trimLater() // fetches above the new limit
		l.mu.Unlock()
	}
	if !at.passes(k.Handover, k.Keep) || k.Queue.View.Gone(c.ticket.Key, c.ticket.Token) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.waiting.Front()
	if first == nil {
		return false
	}
	w := first.Value.(*localCall)
	if !c.assign(w.ctx, from, w.holder, now) { // it was evicted or lost meanwhile
		return false
	}
	w.holder.Permit.Bound()
	l.remove(first, nil)
	k.trimLater()
	return true
}

// surplusStays is how long a fetch that no call needs stays in the queue at most: a call that comes meanwhile
// needs no new one, but until then the fetch counts as a waiting request.
const surplusStays = mostIdle

// WithdrawSurplus withdraws the fetches that no call needs, and returns when their requests are being removed: they
// are no reason to refuse a call of this process that does not wait. It waits for permits that are being delivered as well.
// It reports whether there were any: one of them may have been granted, and its key be idle.
func (k *Keeper) WithdrawSurplus(ctx context.Context) (any bool) {
	l := &k.local
	l.mu.Lock()
	surplus := slices.Clone(l.fetches[min(len(l.fetches), l.needs(l.waiting.Len(), k.limitOr(math.MaxInt32))):])
	grants := slices.Clone(l.grants)
	l.mu.Unlock()
	for _, f := range surplus {
		f.cancel(errSurplus)
	}
	ending := append(surplus, grants...)
	for _, f := range ending {
		select {
		case <-f.ended:
		case <-ctx.Done():
			return true
		}
	}
	return len(ending) > 0
}

// Limit returns the newest limit that the session has seen, and counts how often it was lowered.
func (k *Keeper) Limit() int64 {
	n := k.Queue.Newest()
	if n < k.seen.Swap(n) {
		k.lowered.Add(1)
	}
	return n
}

// trimLater has fetches withdrawn that the local queue does not need or the limit does not admit, unless it needs
// them soon. l.mu is held.
func (k *Keeper) trimLater() {
	l := &k.local
	if l.trims || len(l.fetches) <= l.needs(l.waiting.Len(), k.limitOr(math.MaxInt32)) {
		return
	}
	l.trims, l.most = true, l.waiting.Len()
	time.AfterFunc(min(max(k.Handover, lookEvery), surplusStays), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.trims = false
		for _, f := range l.fetches[min(len(l.fetches), l.needs(l.most, k.limitOr(math.MaxInt32))):] {
			f.cancel(errSurplus)
		}
		k.trimLater()
	})
}
