package keep

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/queue"
)

// Options are what a Keeper is made of.
type Options struct {
	Session  *engine.Session
	Queue    *queue.Queue
	Keep     time.Duration // for how long after its grant a permit may stay for the next call
	Handover time.Duration // for how long it may pass to a call that waits
	Wanted   int64         // this program's limit, for as long as the session has seen none
	// Fetch asks etcd for a permit and has Grant give it a key. waits is called with what is before the request
	// when it begins to wait.
	Fetch func(ctx context.Context, waits func(before *queue.Full)) (*Holder, error)
	// Ended is called when a key has ended that no call had.
	Ended func()
}

// Keeper keeps the permits that the calls of one semaphore have released. What callers share is
// read by them and written only by the keeper's own goroutine: see watch. Each permit that is kept has
// an atomic of its own, by which it goes from caller to caller.
type Keeper struct {
	Options
	base time.Time // of the keeper's clock

	local   localQueue   // empty without Handover
	seen    atomic.Int64 // the limit that Limit has returned last
	lowered atomic.Int64 // how often that was lower than the one before

	quiet  atomic.Int64           // until when it is known that no request waits, by the keeper's clock
	doubts atomic.Int64           // since when that has to be known: see Doubt
	keys   atomic.Pointer[[]*Key] // all that have been idle
	recent sync.Pool              // of those, the ones that this processor has used last: only hints
	mu     sync.Mutex             // of changes of keys

	watching  atomic.Bool   // watch runs
	used      atomic.Int64  // when a permit was released to etcd, by the keeper's clock
	notBefore atomic.Int64  // when watch may start again
	pause     time.Duration // of watch, after requests have waited
}

// New returns what keeps permits, or nil if Options says that none are kept.
func New(o Options) *Keeper {
	if o.Keep == 0 && o.Handover == 0 {
		return nil
	}
	k := &Keeper{Options: o, base: time.Now(), pause: leastPause}
	k.keys.Store(&[]*Key{})
	return k
}

// now reads the keeper's clock, which is the monotonic one.
func (k *Keeper) now() time.Duration { return time.Since(k.base) }

func (k *Keeper) isQuiet(now time.Duration) bool { return now < time.Duration(k.quiet.Load()) }

// Grant gives a permit that etcd has just granted a key, which may serve other calls later. released is the cause
// of the end of each permit that is released and whose key stays.
func (k *Keeper) Grant(h *Holder, e *engine.Epoch, t *queue.Ticket, released error) {
	k.Limit()
	h.key = &Key{keeper: k, epoch: e, ticket: t, granted: k.now(), lowered: k.lowered.Load(), released: released}
	h.key.holder.Store(h)
}

// Take gives a new permit the key of one that was kept. It returns false if there is none to be had: then etcd is
// asked.
func (k *Keeper) Take(ctx context.Context, permit func() *Holder) bool {
	now := k.now()
	if !k.isQuiet(now) || k.Waiting() > 0 || ctx.Err() != nil || k.Session.Accepting().Err() != nil {
		return false
	}
	if c, ok := k.recent.Get().(*Key); ok && c.reuse(ctx, permit, now) {
		return true
	}
	for _, c := range *k.keys.Load() {
		if c.reuse(ctx, permit, now) {
			return true
		}
	}
	return false
}

// list adds what has become idle for the first time.
func (k *Keeper) list(c *Key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	keys := append(slices.Clone(*k.keys.Load()), c)
	k.keys.Store(&keys)
}

// unlist forgets what was idle.
func (k *Keeper) unlist(c *Key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	keys := slices.DeleteFunc(slices.Clone(*k.keys.Load()), func(o *Key) bool { return o == c })
	k.keys.Store(&keys)
}
