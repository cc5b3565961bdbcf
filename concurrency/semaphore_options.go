package concurrency

import (
	"math"
	"time"

	"github.com/etcdkit/etcdkit/internal/engine"
)

// SemaphoreOptions configure a Semaphore. nil means all defaults.
type SemaphoreOptions struct {
	// AdoptLimit accepts the limit that is stored in etcd, instead of failing with a
	// *LimitMismatchError if it differs from this program's. This program's limit then counts only
	// if none is stored; if the two differ, the session's Logger gets a line of information, once. Set
	// it in all programs if operators change the limit with SetLimit.
	// Defaults to false.
	AdoptLimit bool

	// Keep lets a permit that is released stay with this Semaphore for its next call, for as long
	// as no request waits: up to Keep after etcd has granted it, and idle for at most 100 ms. A
	// call that gets such a permit sends nothing to etcd. As soon as this process sees a request
	// that waits, of any process and weight, or a limit below what is in use, idle permits are
	// released, and those in use when their holders release them. A kept permit is handed out
	// only if etcd has confirmed within the last second that no request waits, and while the
	// session's lease is trusted. Session.Close releases kept permits.
	//
	// A kept permit counts as held: Status shows it under this process, with the Token of the
	// first grant, and EvictToken ends it, whichever call has it by then. What changes is TryAcquire,
	// Wait(0) and MaxWaiters(0) of other processes, and of this one for a Weight, an ID or a Note: they
	// may be refused because of a permit that is idle, since a refused call writes nothing to etcd by
	// which others would learn of it. If the key of a permit is deleted by hand, its caller may learn of
	// that from Release, as without Keep. Idle permits count for SessionOptions.MaxPermits. No limit is
	// exceeded, as without Keep, and waiting requests are admitted in their order.
	//
	// A permit of Weight 1 without ID and Note is kept, for such calls, unless its Token or Guard
	// was asked for: then its Release waits for etcd, as without Keep. After a Release that has
	// kept the permit, Token returns 0 and the condition of Guard is never met, because the key in
	// etcd may be another caller's by then.
	//
	// Each Semaphore value keeps permits for its own calls, so a program should have one value
	// for a name. A KeyedLimiter, a Mutex and an Election do not keep permits.
	// At most an hour. Defaults to 0: no permit is kept.
	Keep time.Duration

	// Handover lets a permit that is released pass to a call that waits in this process, although
	// requests of other processes wait: up to Handover after etcd has granted the permit. That is
	// one time for each grant; afterwards the permit is released to etcd, where the oldest request
	// is next. So a limit is used while etcd is asked, for an order that is strict between
	// processes no more: each grant before a request can delay it by up to Handover and one hold.
	// The calls of one process are granted in their order. Once this process has seen that the
	// limit was lowered, permits that were granted before do not pass, whatever it is afterwards.
	//
	// Calls with a Weight of 1, without ID, Note and MaxWaiters, wait in a queue of this process. For
	// all of them it has at most as many requests in etcd as the limit admits: Status and
	// observe.Waiting show those requests, and MaxWaiters of other calls counts them. One that no call
	// needs any more, because the calls have given up, is removed after 0.1 seconds; so are those above a
	// limit that was lowered, when a call joins or leaves that queue next. TryAcquire and
	// calls that are not plain in this way do not wait there: they wait in etcd, while permits pass
	// between the calls of the process. Which permits pass, and what Token and Guard show afterwards, is as for Keep.
	// When etcd was restored from a backup, calls in that queue of a process without a permit may wait
	// for up to one and a half TTLs and three seconds until the session finds that out.
	// The time begins with the grant: choose several times what a call holds its permit for, such
	// as 20 ms for calls of 1 ms.
	// At most a minute. Defaults to 0: permits do not pass between calls.
	Handover time.Duration
}

// maxKeep bounds SemaphoreOptions.Keep, and maxHandover Handover.
const (
	maxKeep     = time.Hour
	maxHandover = time.Minute
)

func (o *SemaphoreOptions) check() error {
	if o.Keep < 0 || o.Keep > maxKeep {
		return invalid("Keep %v is not between 0 and %v", o.Keep, maxKeep)
	}
	if o.Handover < 0 || o.Handover > maxHandover {
		return invalid("Handover %v is not between 0 and %v", o.Handover, maxHandover)
	}
	return nil
}

// SetLimitOption changes one call of SetLimit.
type SetLimitOption func(*limitChange)

// limitChange is what one call of SetLimit asks for.
type limitChange struct{ create bool }

func newLimitChange(n int, opts []SetLimitOption) (c limitChange, err error) {
	if n < 0 || n > math.MaxInt32 {
		return c, invalid("limit %d is not between 0 and %d", n, math.MaxInt32)
	}
	return c, engine.Apply(opts, &c)
}

// CreateLimit lets SetLimit store a limit for a name that is not in use yet.
func CreateLimit() SetLimitOption { return func(c *limitChange) { c.create = true } }
