package concurrency

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// keepIdle is how long a permit is kept idle at most. A try of another process that is refused
	// because of it writes nothing, so this process does not learn of it (W16 in
	// internal/proof/tested-failures.md).
	keepIdle = 100 * time.Millisecond
	// keepProof is how long etcd's answer that no request waits is good for (W17).
	keepProof = time.Second
	// keepLook is the time between two looks at idle permits.
	keepLook = keepIdle / 4
	// trustFor is how long a look at all clocks counts, by the monotonic one.
	trustFor = time.Millisecond
)

// idleness is what decides whether a permit may stay in its process for the next caller.
type idleness struct {
	quiet   bool          // etcd has confirmed, less than keepProof ago, that no request waits
	trusted bool          // the session's lease is
	age     time.Duration // since etcd has granted the permit
	idle    time.Duration // since its holder has released it; 0 if that is now
	lowered bool          // the limit was lowered since the grant: it may be exceeded
}

// stays reports whether a permit may stay for the next caller, by SemaphoreOptions.Keep. One time
// counts for a permit, from its grant: no caller starts it again.
func (i idleness) stays(keep time.Duration) bool {
	return i.quiet && i.trusted && i.age < keep && i.idle < keepIdle
}

// passes reports whether a permit may go to a call that waits in its process, by
// SemaphoreOptions.Handover. The same one time counts.
//
// Nor does any other process lose by a permit that passes while it might stay. A limit that is lowered
// stops the calls in the local queue, too.
func (i idleness) passes(handover, keep time.Duration) bool {
	return !i.lowered && (i.trusted && i.age < handover || i.stays(keep))
}

// keeper keeps the permits that the calls of one Semaphore have released. What callers share is
// read by them and written only by the keeper's own goroutine: see watch. Each permit that is kept has
// an atomic of its own, by which it goes from caller to caller.
type keeper struct {
	queue *sessionQueue
	keep  time.Duration
	base  time.Time // of the keeper's clock

	handover time.Duration
	local    localQueue   // empty without handover
	seen     atomic.Int64 // the limit that limit has returned last
	lowered  atomic.Int64 // how often that was lower than the one before

	quiet  atomic.Int64               // until when it is known that no request waits, by the keeper's clock
	doubts atomic.Int64               // since when that has to be known: see doubt
	keys   atomic.Pointer[[]*keptKey] // all that have been idle
	recent sync.Pool                  // of those, the ones that this processor has used last: only hints
	mu     sync.Mutex                 // of changes of keys

	watching  atomic.Bool   // watch runs
	used      atomic.Int64  // when a permit was released to etcd, by the keeper's clock
	notBefore atomic.Int64  // when watch may start again
	pause     time.Duration // of watch, after requests have waited
}

// newKeeper returns what keeps the permits of a semaphore with those options, or nil.
func newKeeper(q *sessionQueue, o *SemaphoreOptions) *keeper {
	if o.Keep == 0 && o.Handover == 0 {
		return nil
	}
	k := &keeper{queue: q, keep: o.Keep, handover: o.Handover, base: time.Now(), pause: keepPause}
	k.keys.Store(&[]*keptKey{})
	return k
}

// now reads the keeper's clock, which is the monotonic one.
func (k *keeper) now() time.Duration { return time.Since(k.base) }

func (k *keeper) isQuiet(now time.Duration) bool { return now < time.Duration(k.quiet.Load()) }

// isPlain reports whether a request may be granted any permit that is kept (W19).
func (r *request) isPlain() bool { return r.Weight == 1 && !r.hasID && r.Note == "" }

// newKey returns the key of a permit that etcd has granted to one of the keeper's calls.
func (k *keeper) newKey(p *Permit) *keptKey {
	c := &keptKey{
		keeper: k, epoch: p.epoch, ticket: p.ticket, granted: k.now(), released: p.queue.ending(p.ticket, ErrReleased, ""),
	}
	k.limit()
	c.lowered, c.released.Token = k.lowered.Load(), 0
	c.holder.Store(p)
	return c
}

// keeps reports whether permits may be kept for the semaphore's calls.
func (s semaphore) keeps() bool { return s.keeper != nil }

// takeFor is take for a request that may be granted any permit, of a call with options. If it is nil, the
// permit that etcd grants may be kept.
func (k *keeper) takeFor(ctx context.Context, r *request, of source) *Permit {
	if p := k.take(ctx, r.MaxHold, of); p != nil {
		return p
	}
	if r.Bounded && k.withdrawSurplus(ctx) { // one of them may have been granted meanwhile, and be idle
		return k.take(ctx, r.MaxHold, of)
	}
	return nil
}

// take returns a permit that was kept, or nil if there is none to be had: then etcd is asked.
func (k *keeper) take(ctx context.Context, maxHold time.Duration, of source) *Permit {
	now := k.now()
	if !k.isQuiet(now) || k.local.length.Load() > 0 || ctx.Err() != nil || k.queue.sess.Accepting().Err() != nil {
		return nil
	}
	p := &Permit{queue: k.queue, maxHold: maxHold, source: of}
	if c, ok := k.recent.Get().(*keptKey); ok && c.reuse(ctx, p, now) {
		return p
	}
	for _, c := range *k.keys.Load() {
		if c.reuse(ctx, p, now) {
			return p
		}
	}
	return nil
}

// list adds what has become idle for the first time.
func (k *keeper) list(c *keptKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	keys := append(slices.Clone(*k.keys.Load()), c)
	k.keys.Store(&keys)
}

// unlist forgets what was idle.
func (k *keeper) unlist(c *keptKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	keys := slices.DeleteFunc(slices.Clone(*k.keys.Load()), func(o *keptKey) bool { return o == c })
	k.keys.Store(&keys)
}
