package concurrency

import (
	"context"
	"errors"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/queue"
	"github.com/etcdkit/etcdkit/observe"
)

// How requests wait that are far from their admission: design note 21.

// errMoved says that a request waits in another way now.
var errMoved = errors.New("the request waits in another way")

// horizons returns the horizons of the queues of a session.
func horizons(ctx context.Context) func(fixed bool) queue.Horizon {
	set, ok := queue.HorizonOf(ctx)
	return func(fixed bool) queue.Horizon {
		switch {
		case ok:
			return set
		case fixed:
			return queue.FixedLimit
		}
		return queue.StoredLimit
	}
}

// comes counts a request that is about to be written, until came is called: it may be before all that
// wait. A try cannot be, since it is written only where it need not wait.
func (q *sessionQueue) comes(a *attempt) (came func()) {
	if a.bounded && a.maxWaiters == 0 {
		return func() {}
	}
	counted := q.waiters.comes()
	return func() {
		counted()
		if q.waiters.settles(q.crowded) {
			q.guided()
		}
	}
}

// wait adds a request to those of the session that wait in this queue, until leave is called.
func (q *sessionQueue) wait(c *ticket) (s *waiter, leave func()) {
	s = &waiter{ticket: c, woken: make(chan struct{}, 1)}
	if q.waiters.enter(s, q.crowded, q.far) {
		q.guided()
	}
	if c.came != nil {
		c.came()
	}
	return s, func() {
		if q.waiters.leave(s, q.crowded) {
			q.guided()
		}
	}
}

// guided starts a guide.
func (q *sessionQueue) guided() {
	q.view.Rest()
	g := guide{sessionQueue: q, stop: func() {}}
	if !q.sess.Background(g.run) {
		q.waiters.become(whole)
	}
}

// far reports whether a request is far, as far as the session knows. The requests at a key of a limiter
// follow their queue: the caps of keys are small, and few wait at one key.
func (q *sessionQueue) far(s *waiter) bool {
	return q.isBehind(s, func(limit int64) bool { return int64(s.found.Ahead) >= q.horizon.Distance(limit) })
}

// crowded reports whether a request, the first of so many of the session, is far, or near in a crowd.
func (q *sessionQueue) crowded(s *waiter, own int) bool {
	return q.isBehind(s, func(limit int64) bool {
		return int64(s.found.Ahead) >= q.horizon.Distance(limit) || q.horizon.Crowded(limit, s.found.Ahead+1, own)
	})
}

// isBehind reports whether a request may be far and is behind many others: as found, what its Txn has
// counted, shows. If the session follows it already, it is so only if it is too far to continue.
func (q *sessionQueue) isBehind(s *waiter, found func(limit int64) bool) bool {
	if q.base != nil || s.slot.Try {
		return false
	}
	limit := q.limitSeen()
	if ahead, ok := q.view.Ahead(s.Key, s.Token); ok {
		return !q.horizon.Stays(ahead, limit)
	}
	return s.found.Known && found(limit)
}

// limitSeen returns the limit that the session has seen last.
func (q *sessionQueue) limitSeen() int64 {
	if l := q.limit.Seen(); l != nil {
		return l.N
	}
	return 0
}

// sleep waits until the request waits in another way, and returns errMoved then.
func (q *sessionQueue) sleep(ctx context.Context, e *engine.Epoch, s *waiter, begun time.Time, moved <-chan struct{}) error {
	noticed := e.Noticed(s.Ticket)
	report := time.NewTimer(0)
	defer report.Stop()
	for {
		select {
		case <-moved:
			return errMoved
		case <-noticed:
			noticed = nil
			signal(s.woken)
		case <-s.woken:
			if q.isGone(ctx, s) {
				return q.keyGone(ctx, e, s.ticket, begun)
			}
			if limit := q.limitSeen(); queue.TooHeavy(s.slot.Weight, limit) {
				e.Withdraw(s.Ticket, q.refusal(s.ticket))
				return tooHeavy(q.level(), s.slot.Weight, limit)
			}
		case <-report.C:
			q.waits(ctx, s.ticket, observe.Waiting{Waited: time.Since(begun), Limit: int(q.limitSeen()), Ahead: s.found.Ahead})
			report.Reset(q.own.reportEvery)
		case <-ctx.Done():
			e.Withdraw(s.Ticket, q.refusal(s.ticket))
			return &waitEnd{q.fullFound(s.ticket)}
		}
	}
}

// isGone reports whether a request's key is gone.
func (q *sessionQueue) isGone(ctx context.Context, s *waiter) bool {
	resp, err := q.sess.Read(ctx, s.Key, clientv3.WithKeysOnly())
	if err != nil || s.shownAt(resp.Header.Revision) != nil {
		return false
	}
	q.sess.See(resp.Header.Revision)
	return len(resp.Kvs) == 0 || resp.Kvs[0].CreateRevision != s.Token
}

// ownKeys returns the prefix of the keys of a request and of the others of its session, as far as
// they have the same weight.
func (s *waiter) ownKeys() string {
	return s.Key[:strings.LastIndex(strings.TrimSuffix(s.Key, "-try"), "-")+1]
}

// tail is what a list shows of the requests before one.
type tail struct {
	before   []queue.Entry // the youngest first; the oldest are left out
	limit    limit.Limit
	near     bool  // the request is gone, or the limit cannot be read: its view shows what to do
	requests int64 // how many there are in all
}

// mostForeign bounds how many foreign keys tail reads beside the requests.
const mostForeign = 1024

// tail reads the requests before one, as many as show whether it is far. Where foreign keys take the place
// of requests in what was read, it reads more.
func (q *sessionQueue) tail(ctx context.Context, s *waiter) (tail, error) {
	for {
		room := q.foreign.Load()
		t, foreign, cut, err := q.tailWithin(ctx, s, q.horizon.Distance(q.limitSeen())+1+room)
		if err != nil || !cut || foreign <= room || room == mostForeign {
			return t, err
		}
		q.foreign.Store(min(2*foreign, mostForeign))
	}
}

// tailWithin is tail of so many keys. It returns how many of them were foreign, and whether there are more.
func (q *sessionQueue) tailWithin(ctx context.Context, s *waiter, most int64) (t tail, foreign int64, cut bool, err error) {
	ops := []clientv3.Op{clientv3.OpGet(q.keys.Requests, clientv3.WithPrefix(), clientv3.WithMaxCreateRev(s.Token),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend), clientv3.WithLimit(most))}
	resp, err := q.readAll(ctx, s, append(ops, q.limit.Reads()...))
	if err != nil {
		return t, 0, false, err
	}
	l, stored, err := q.limit.Learn(q.limit.Records(resp.Responses[1:]))
	t.limit, t.near = l, err != nil || !stored
	q.waiters.wakeIf(func(s *waiter) bool { return queue.TooHeavy(s.slot.Weight, l.N) })
	found, there := resp.Responses[0].GetResponseRange(), false
	for _, kv := range found.Kvs {
		if kv.CreateRevision == s.Token && string(kv.Key) == s.Key {
			there = true
		} else if slot, ok := q.keys.ParseSlot(string(kv.Key)); ok && kv.Lease != 0 {
			t.before = append(t.before, queue.Entry{Key: string(kv.Key), Create: kv.CreateRevision, Weight: slot.Weight})
		} else {
			foreign++
		}
	}
	t.requests, t.near = found.Count, t.near || !there
	return t, foreign, found.More, nil
}

// errOld says that an answer is older than the request for which it was asked.
var errOld = errors.New("the answer is older than the request")

// lookTimeout bounds one read of what is before a far request. Its turn may come meanwhile, so it is
// shorter than commit.CallTimeout.
const lookTimeout = 2 * time.Second

// readAll reads linearizably, as of one revision that shows the request.
func (q *sessionQueue) readAll(ctx context.Context, s *waiter, ops []clientv3.Op) (*clientv3.TxnResponse, error) {
	resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.TxnResponse, error) {
		call, cancel := context.WithTimeout(call, lookTimeout)
		defer cancel()
		return q.sess.KV().Txn(call).Then(ops...).Commit()
	})
	if err == nil {
		err = s.shownAt(resp.Header.Revision)
	}
	if err != nil {
		return nil, err
	}
	q.sess.See(resp.Header.Revision)
	return resp, nil
}

// shownAt returns errOld if an answer of that revision is too old to show the request.
func (s *waiter) shownAt(revision int64) error {
	if revision < s.Token {
		return errOld
	}
	return nil
}
