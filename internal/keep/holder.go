package keep

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/queue"
)

// Permit is what the caller of a key has.
type Permit interface {
	engine.Holder
	// Begin begins the life of the permit, of a request that etcd has granted, for the call with that ctx.
	Begin(ctx context.Context, e *engine.Epoch, t *queue.Ticket, since time.Time)
	// Bound has it end by its MaxHold, for the call that gets it.
	Bound()
	// Lasts reports whether it has not ended; trusted says that its lease has not.
	Lasts(trusted bool) bool
	// Vacate ends it as one that is released, and reports whether this call did.
	Vacate(cause error) bool
	// Ending returns the cause of its end by a release that shows its token.
	Ending() error
	// Stayed completes its release, at that time: the request stays.
	Stayed(at time.Time)
	// KeyGone ends it, since its key is gone from etcd. It may ask etcd for the reason.
	KeyGone()
}

// Holder is the part of a permit by which it has a key. The zero Holder has none.
type Holder struct {
	Permit Permit // nothing changes it

	key    *Key
	fenced atomic.Int32 // asked or sealed, if key is set
}

// The states of Holder.fenced, which leaves the first one once. A key that was asked for is what a
// fencing resource or a Txn knows its holder by, so it has no other holder (W18 in
// internal/proof/tested-failures.md).
const (
	asked  = iota + 1 // for Token or Guard: the permit does not stay
	sealed            // it has stayed: it shows its key no more
)

// Fence reports whether a permit may show its token, and has it not kept from now on.
func (h *Holder) Fence() bool {
	return h.key == nil || h.fenced.CompareAndSwap(0, asked) || h.fenced.Load() == asked
}

// seal has a permit show its key no more, unless it has.
func (h *Holder) seal() bool { return h.fenced.CompareAndSwap(0, sealed) }

// Release is the release of a permit if its key passes to a call in the local queue, or stays for the next one. If
// not, nothing is released.
func (h *Holder) Release() (stayed bool) { return h.key != nil && h.key.release(h) }

// End ends the key of a permit that is about to be removed. It returns false if the key has ended, or is another
// caller's by now; a permit that has no key is removed in any case.
func (h *Holder) End() bool { return h.key == nil || h.key.endOf(h) }

// ForEpoch returns what the permit's epoch knows as the holder of its request.
func (h *Holder) ForEpoch() engine.Holder {
	if h.key == nil {
		return h.Permit
	}
	return h.key
}
