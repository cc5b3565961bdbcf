package idempotency

import (
	"container/list"
	"sync"
	"time"
)

// Outcome is the recorded outcome of a request. It is immutable.
type Outcome struct {
	// Value is the result, or the details of a failure. The caller must not change it.
	Value []byte
	// Failed reports whether the request failed; Failure is the text of the failure.
	Failed  bool
	Failure string
	// Omitted reports that the result was not kept, because it was too large or could not be
	// encoded.
	Omitted bool
	// Attempt and Token are the number and the token of the attempt that recorded the outcome.
	Attempt int
	Token   int64
	// Resolved is the session of the operator who has recorded the outcome; empty for that of a function.
	Resolved string

	print prints
}

func (r *Outcome) size() int { return len(r.Value) + len(r.Failure) + 256 }

// cache keeps outcomes for a short time, and drops the least recently used ones if there are too many.
// Outcomes do not change, but they are deleted and expire, so they are not kept for long. They are in the clear, so they
// leave the memory then whether or not the process has another call.
type cache struct {
	most int
	keep time.Duration

	mu    sync.Mutex
	timer *time.Timer // of the next sweep; nil while the cache is empty
	past  moment      // when an outcome was forgotten last: of what was asked for before that, none is kept
	size  int
	byRef map[string]*list.Element
	order list.List // of *cached, latest use first
}

type cached struct {
	ref   string
	rec   *Outcome
	since moment // before the write or the read was sent
	keep  time.Duration
}

func (c *cache) get(ref string) *Outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byRef[ref]
	if e == nil {
		return nil
	}
	x := e.Value.(*cached)
	if aged(x.since) >= x.keep {
		c.remove(ref)
		return nil
	}
	c.order.MoveToFront(e)
	return x.rec
}

// put keeps an outcome for retain at most, from since. If this process has recorded it, retain is that of
// the outcome, which therefore is not replayed after it has expired. A process that has read an outcome
// does not know its age, and may replay it for as long after it has expired.
func (c *cache) put(ref string, rec *Outcome, since moment, retain time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(ref)
	if rec.size() > c.most/4 || c.keep == 0 || !c.past.IsZero() && !since.After(c.past.Time) {
		return
	}
	c.byRef[ref] = c.order.PushFront(&cached{ref, rec, since, min(c.keep, retain)})
	c.size += rec.size()
	if c.timer == nil {
		c.timer = time.AfterFunc(c.keep/sweeps, c.sweep)
	}
	for e := c.order.Back(); e != nil && c.size > c.most; e = c.order.Back() {
		c.remove(e.Value.(*cached).ref)
	}
}

// sweeps is how often the cache is swept while it keeps an outcome: outcomes stay for a quarter longer than they count.
const sweeps = 4

// sweep drops the outcomes that have been kept for long enough.
func (c *cache) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := now()
	for e := c.order.Back(); e != nil; {
		x := e.Value.(*cached)
		e = e.Prev()
		if x.since.Age(at) >= x.keep {
			c.remove(x.ref)
		}
	}
	if len(c.byRef) == 0 {
		c.timer, c.byRef = nil, map[string]*list.Element{} // a map keeps the room of its largest size
		return
	}
	c.timer = time.AfterFunc(c.keep/sweeps, c.sweep)
}

// forget drops an outcome that was changed or deleted, also for a call that has read it before and still has to put it.
func (c *cache) forget(ref string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.past = now()
	c.remove(ref)
}

// remove drops an outcome, if it is there. The caller holds mu.
func (c *cache) remove(ref string) {
	if e := c.byRef[ref]; e != nil {
		delete(c.byRef, ref)
		c.size -= c.order.Remove(e).(*cached).rec.size()
	}
}
