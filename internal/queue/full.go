package queue

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/crowd"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/rank"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Why a call is not admitted. Each of these types is an error, so that it returns like one, and nothing wraps
// it; its text is for no reader.

// Full is how full a queue is, without the caller's own request. As an error it is a refusal because of that.
type Full struct {
	Limit, Used int64
	Waiting     int
	Unseen      bool // etcd has not shown the queue: only the limit is known
	Paused      bool // of one that was not seen: etcd has shown for the call that the limit is 0
	queue       *Queue
}

func (*Full) Error() string { return "the queue is full" }

// full describes a queue that was counted or seen. No number is below 0: what is subtracted may not have been counted.
func (q *Queue) full(limit, used int64, waiting int) *Full {
	return &Full{queue: q, Limit: limit, Used: max(0, used), Waiting: max(0, waiting)}
}

// Level returns the level of a limiter whose queue this is.
func (f *Full) Level() Level { return f.queue.Level() }

// Cause returns what has refused the request in the end: the total, if a key is full because one of its requests
// waits for that. It may read, for half a second at most.
func (f *Full) Cause() *Full { return f.queue.pair.cause(f) }

// WaitEnd is the end of a wait in a queue, by whatever has ended its ctx.
type WaitEnd struct{ Full *Full }

func (*WaitEnd) Error() string { return "the wait has ended" }

// InUse is a refusal because a live request has the ID. At is the level at which that waits, if it is one of a
// key with a total and waits.
type InUse struct {
	Request mirror.Request
	At      Level
}

func (*InUse) Error() string { return "the ID is in use" }

// Noticed is the end of a request that waits by a notice of another session. It has the token that the request has at its key,
// which is the one that is shown while it waits there or for a total.
type Noticed struct {
	Token  int64
	Notice record.Notice
}

func (*Noticed) Error() string { return "others have ended the request" }

// TooHeavy is a refusal of a weight that the limit can never admit.
type TooHeavy struct {
	At           Level
	Weight, Most int64
}

func (*TooHeavy) Error() string { return "the request is heavier than the limit" }

// tooHeavy refuses a weight above the limit.
func (q *Queue) tooHeavy(weight, most int64) error { return &TooHeavy{q.Level(), weight, most} }

// Outage is a refusal because etcd does not answer.
type Outage struct{ engine.Outage }

func (*Outage) Error() string { return "etcd does not answer" }

// Unknown is for a call whose wait has ended while it had no request in the queue: that etcd does not answer, how full
// the queue is if the session follows it, or the limit alone.
func (q *Queue) Unknown() error {
	if o, ok := q.sess.Unavailable(); ok {
		return &Outage{o}
	}
	if f := q.Followed(); f != nil && !f.room(1) {
		return f
	}
	return q.unseen()
}

// unseen describes a queue that etcd has not shown.
func (q *Queue) unseen() *Full { return &Full{queue: q, Limit: limit.SeenN(q.Limit), Unseen: true} }

// paused describes a queue of which etcd has shown that its limit is 0, and not which of its requests hold.
func (q *Queue) paused() *Full { return &Full{queue: q, Unseen: true, Paused: true} }

// Ends returns the end of a wait for a permit of that weight in the queue that f describes. If f does not show why
// the call has waited, the queue is one that was not seen.
func (f *Full) Ends(weight int64) *WaitEnd {
	if f.room(weight) {
		f = f.queue.unseen()
	}
	return &WaitEnd{f}
}

// room reports whether a request of that weight would be admitted, so that the queue is not why it has waited.
func (f *Full) room(weight int64) bool { return f.Waiting == 0 && rank.Fits(f.Used, weight, f.Limit) }

// Ended returns how a call ends, by err, that has no request in the queue: if its Wait has ended, by how full the queue
// was when it was counted for the call last, or else as the session follows it, if etcd has answered since the call began. If
// neither shows why the call has waited, it is err.
func (c *Call) Ended(ctx context.Context, err error) error {
	full, isFull := err.(*Full) //nolint:errorlint // nothing wraps it
	if context.Cause(ctx) != ErrWaited || !errors.Is(err, ctx.Err()) && !(isFull && full.Unseen) {
		return err
	}
	now := c.Queue.Followed()
	if o, _ := c.Queue.sess.Unanswered(c.Begun); !o.LastAnswer.After(c.Begun) {
		now = nil
	}
	for _, f := range [...]*Full{c.shown, now} {
		if f != nil && !f.room(c.Weight) {
			return &WaitEnd{f}
		}
	}
	return err
}

// Followed describes the queue as the session sees it, if its requests follow it whole; otherwise it is nil.
func (q *Queue) Followed() *Full {
	b := q.View.Brief()
	if q.Crowd.Mode() != crowd.Whole || b.Revision == 0 {
		return nil
	}
	return q.fullShown(b)
}

// fullShown describes the queue as a mirror has shown it, before the request that it was asked for.
func (q *Queue) fullShown(b mirror.Brief) *Full {
	if b.Waits {
		b.Waiting--
	}
	return q.full(b.Limit, b.Used, b.Waiting)
}

// fullView describes a queue as it was read, without one request.
func (q *Queue) fullView(v mirror.View, own int64) *Full {
	f := q.full(v.Limit, v.Used, 0)
	for _, r := range v.Waiters {
		if r.Create != own {
			f.Waiting++
		}
	}
	return f
}

// fullCount describes a queue of so many light requests. Its limit is above 0: at 0, counts do not show which of them
// hold.
func (q *Queue) fullCount(limit, requests int64) *Full {
	return q.full(limit, min(limit, requests), int(requests-limit))
}

// without reports whether a queue of light requests is too full for one more also without so many of them.
func (f *Full) without(gone, maxWaiters int) bool {
	return f.Used+int64(f.Waiting-gone) >= f.Limit+int64(maxWaiters)
}

// fullAt describes the queue before a request whose wait has ended.
func (c *Ticket) fullAt(ctx context.Context, r crowd.Result) *Full {
	if r.Asleep {
		return c.fullNow(ctx)
	}
	return c.fullBrief(r.Seen)
}

// fullBrief describes the queue before a waiting request, as far as a mirror has shown it. While that knows
// nothing of the request yet, the Txn of the request has counted the queue.
func (c *Ticket) fullBrief(b mirror.Brief) *Full {
	if b.Revision == 0 || b.Revision < c.Token {
		return c.fullFound()
	}
	return c.queue.fullShown(b)
}

// fullFound describes the queue before a request as the Txn that wrote it has counted it. Of heavy requests
// only the number is known: so many are before it that the limit is in use.
func (c *Ticket) fullFound() *Full {
	if f, ok := c.behind(); ok {
		return f
	}
	return c.queue.fullOf(c.found.Known, int64(c.found.Ahead))
}

// fullOf describes a queue of which a count is known, where that does not show how many of its requests are light, or
// under which limit.
func (q *Queue) fullOf(known bool, requests int64) *Full {
	l := q.Limit.Seen()
	switch {
	case !known || l == nil:
		return q.unseen()
	case l.N == 0:
		return q.paused()
	}
	if requests > 0 {
		requests = max(l.N, requests)
	}
	return q.fullCount(l.N, requests)
}

// behind is fullFound where that shows how many wait.
func (c *Ticket) behind() (_ *Full, ok bool) {
	q := c.queue
	l := q.Limit.Seen()
	if !c.found.Known || c.found.Heavy || l == nil || l.Revs != c.at || l.N == 0 {
		return nil, false
	}
	return q.fullCount(l.N, int64(c.found.Ahead)), true
}

// recount is how full a queue was when that was counted last for requests that follow no view of it, and whose waits end.
// Many of them may end at the same time.
type recount struct {
	mu    sync.Mutex
	full  *Full
	at    time.Time
	under chan struct{} // closed when the count that is under way has ended, or nil
}

// recountFor is how long one count serves.
const recountFor = time.Second

// fullNow describes the queue beside a request that follows no view of it and whose wait has ended. What its Txn has
// counted may be of minutes ago, and is all that is known if etcd does not show more. A caller whose own ctx has ended does not
// wait for a count.
func (c *Ticket) fullNow(ctx context.Context) *Full {
	q := c.queue
	if _, away := q.sess.Unavailable(); away || context.Cause(ctx) != ErrWaited {
		return c.fullFound()
	}
	if now := q.recount.of(c.recounted); !now.Unseen || now.Paused {
		return &now
	}
	return c.fullFound()
}

// of returns what the last count has found, or makes another one. It waits for one that is under way.
func (r *recount) of(count func() *Full) Full {
	r.mu.Lock()
	switch under := r.under; {
	case under != nil:
		r.mu.Unlock()
		<-under
		r.mu.Lock()
	case r.full == nil || time.Since(r.at) >= recountFor:
		under = make(chan struct{})
		r.under = under
		r.mu.Unlock()
		now := count()
		r.mu.Lock()
		r.full, r.at, r.under = now, time.Now(), nil
		close(under)
	}
	defer r.mu.Unlock()
	return *r.full
}

// recounted counts the queue beside the request. That may be gone, with its lease for example, and is not counted then.
func (c *Ticket) recounted() *Full {
	q := c.queue
	ctx, cancel := context.WithTimeout(q.sess.Context(), causeFor) // the call's has ended
	defer cancel()
	t, read, _, err := q.CountAnd(ctx, []clientv3.Op{clientv3.OpGet(c.Key, clientv3.WithCountOnly())})
	if err != nil {
		return q.unseen()
	}
	requests := t.Light + t.Others - read[0].GetResponseRange().Count
	_, _, err = q.Limit.Learn(t.Records)
	l := q.Limit.Seen()
	if err == nil && l != nil && l.N > 0 && t.Others == 0 {
		return q.fullCount(l.N, requests)
	}
	return q.fullOf(err == nil, requests)
}
