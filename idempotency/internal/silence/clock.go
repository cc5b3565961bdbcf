package silence

import (
	"context"
	"sync"
	"time"
)

// Clock measures a wait for etcd in parts. After a pause of the process, such as SIGSTOP or a lack of CPU, a timer fires
// before what has arrived meanwhile is read: a part that has taken too long does not count. So a pause is no silence of
// etcd's. It is safe for concurrent use.
type Clock struct {
	part time.Duration
	each func(p Part) (more bool)

	mu    sync.Mutex
	timer *time.Timer
	left  time.Duration // of the time that is measured
	ran   time.Duration
	from  time.Time // when the present part has begun
	over  bool
}

// Part is a part of a wait.
type Part struct {
	From, To time.Time
	Ran      time.Duration // the parts that count, this one included
}

const (
	longestPart = 500 * time.Millisecond
	spare       = 100 * time.Millisecond // how late a timer may fire, however short the part is
)

// Start returns a clock that measures d, and then continues. It calls each for each part that counts, until that returns
// false or Stop is called. The time that has then been measured is d exactly once, in the part that ends it.
func Start(d time.Duration, each func(p Part) (more bool)) *Clock {
	c := &Clock{part: max(1, min(d/10, longestPart)), each: each, left: d, from: time.Now()}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = time.AfterFunc(c.next(), c.fire)
	return c
}

// next returns how long the present part lasts.
func (c *Clock) next() time.Duration {
	if c.left > 0 {
		return min(c.part, c.left)
	}
	return c.part
}

// counts reports whether a part counts that has taken so long.
func counts(took, part time.Duration) bool { return took <= part+max(part/2, spare) }

func (c *Clock) fire() {
	if p, ok := c.passed(time.Now()); ok && !c.each(p) {
		c.Stop()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over { // not before, so that calls of each come one after the other
		c.timer.Reset(max(0, c.next()-time.Since(c.from)))
	}
}

// passed ends the present part, and begins the next one. ok is false if it does not count.
func (c *Clock) passed(now time.Time) (p Part, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return p, false
	}
	if part := c.next(); counts(now.Sub(c.from), part) {
		c.ran, c.left, ok = c.ran+part, c.left-part, true
	}
	p = Part{c.from, now, c.ran}
	c.from = now
	return p, ok
}

// Stop stops the clock, and returns what has passed of the present part. ok is false if that does not count, or the clock
// was stopped before.
func (c *Clock) Stop() (p Part, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return p, false
	}
	c.over = true
	c.timer.Stop()
	now := time.Now()
	took := now.Sub(c.from)
	return Part{c.from, now, c.ran + took}, counts(took, c.part)
}

// Within returns a child of ctx that also ends, with context.DeadlineExceeded, when the process has waited for d by such a
// clock.
func Within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := Start(d, func(p Part) bool {
		if p.Ran >= d {
			cancel(context.DeadlineExceeded)
		}
		return p.Ran < d
	})
	return timed{ctx}, func() { c.Stop(); cancel(nil) }
}

// timed is a context whose end by a clock is that of a deadline.
type timed struct{ context.Context }

// Err implements context.Context.
func (t timed) Err() error {
	err := t.Context.Err()
	if err != nil && context.Cause(t.Context) == context.DeadlineExceeded { //nolint:errorlint // the clock's own
		return context.DeadlineExceeded
	}
	return err
}
