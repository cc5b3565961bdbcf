package queue

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// Where many calls with MaxWaiters come at the same time, each request breaks the condition of all others that no other
// has come: most Txns write nothing. A call that contends is written without that condition, marked as a try, and its own
// Txn counts what is before it. Where its session follows the queue, it looks at what it sees there in place of etcd.

// contention is what a session knows of how many requests with MaxWaiters come to a queue at the same time.
type contention struct {
	seen    atomic.Int64 // when one has overtaken another last, in nanoseconds
	joining atomic.Int64 // those that this session is writing because the view shows room for them
}

func (c *contention) begins() { c.seen.Store(time.Now().UnixNano()) }

// contends reports whether a call that may wait behind others is written without the condition that no other has come,
// because that was not met a moment ago. Its own Txn counts what is before it.
func (j *joining) contends() bool {
	return j.MaxWaiters > 0 && j.Weight == 1 && j.ID == "" && time.Since(time.Unix(0, j.Queue.contention.seen.Load())) < patience
}

// reserve reports whether a call that contends needs no look: the session follows the queue, and sees room for it and for
// all others that it is writing. The room is reserved until contention.joining is lowered.
func (j *joining) reserve() bool {
	f := j.Queue.Followed()
	if f == nil || !j.contends() {
		return false
	}
	writing := &j.Queue.contention.joining
	all := writing.Add(1)
	if f.Used+int64(f.Waiting)+all <= f.Limit+int64(j.MaxWaiters) {
		return true
	}
	writing.Add(-1)
	f.Waiting += int(all - 1)
	j.shown = f
	return false
}

// joinReserved writes a request for which room is reserved.
func (j *joining) joinReserved(ctx context.Context) (*Ticket, bool, error) {
	c, admitted, err := j.enqueueAnyway(ctx, false)
	j.Queue.contention.joining.Add(-1)
	if !admitted {
		j.Queue.contention.begins() // it lasts
	}
	return c, admitted, err
}

// glance is how long a call that contends waits for room before its first look.
const glance = patience / 5

// awaitRoom waits that long, or until a call that contends has reserved room. One that cannot rests by the pause, if there is
// one.
func (j *joining) awaitRoom(ctx context.Context, pause *commit.Backoff, most time.Duration) (reserved bool, err error) {
	switch {
	case j.contends() && j.Queue.Followed() != nil:
	case pause == nil:
		return false, nil
	default:
		return false, j.removals.rest(ctx, pause)
	}
	m := j.Queue.View.Join()
	defer m.Leave()
	t := time.NewTimer(most)
	defer t.Stop()
	for {
		_, changed := m.Brief("", 0, 0)
		if j.reserve() {
			return true, nil
		}
		select {
		case <-changed:
		case <-t.C:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}
