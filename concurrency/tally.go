package concurrency

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/queue"
)

// tally is what counts show of a queue. It costs etcd little, however long the queue is.
type tally struct {
	light, others int64 // requests of weight 1, and heavier ones
	records       limit.Records
}

// tallies are the reads of a tally. Stray keys are read beside the counts, which include them.
func (q *sessionQueue) tallies(strays []mirror.Stray) []clientv3.Op {
	ops := append([]clientv3.Op{clientv3.OpGet(q.keys.Light, clientv3.WithPrefix(), clientv3.WithCountOnly())}, q.limit.Counts()...)
	return append(ops, readStrays(strays)...)
}

// tally returns what the reads of tallies have shown.
func (q *sessionQueue) tally(strays []mirror.Stray, read []*etcdserverpb.ResponseOp) (t tally) {
	light, others := q.uncount(strays, read[len(read)-len(strays):])
	t.records, t.others = q.limit.Counted(read[1:])
	t.light, t.others = read[0].GetResponseRange().Count-light, t.others-others
	return t
}

// count reads a tally.
func (q *sessionQueue) count(ctx context.Context) (t tally, revision int64, err error) {
	t, _, revision, err = q.countAnd(ctx, nil)
	return t, revision, err
}

// countAnd reads a tally and more, as of the same revision.
func (q *sessionQueue) countAnd(ctx context.Context, more []clientv3.Op) (t tally, and []*etcdserverpb.ResponseOp, revision int64, err error) {
	strays := q.counted()
	resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.TxnResponse, error) {
		return q.sess.KV().Txn(call).Then(append(q.tallies(strays), more...)...).Commit()
	})
	if err != nil {
		return t, nil, 0, err
	}
	q.sess.See(resp.Header.Revision)
	n := len(resp.Responses) - len(more)
	return q.tally(strays, resp.Responses[:n]), resp.Responses[n:], resp.Header.Revision, nil
}

// longQueue is how many requests the queue of a total may have for tries to look at their names, and to
// be written on the condition that no other request has come: that costs etcd 2 µs for each request
// that is there, and all of it while it applies nothing else. In a longer queue counts decide (N7 in
// internal/proof/tested-failures.md): then a try may be refused because of another that is refused at the same
// moment.
const longQueue = 256

// lookAtCounts is look for a request of weight 1 in the queue of a total that admits more than a
// long queue has. ok is false if counts do not decide.
func (q *sessionQueue) lookAtCounts(ctx context.Context, a *attempt) (o outlook, ok bool, err error) {
	known := q.limit.Seen()
	if q.limiter == nil || known == nil || known.N == 0 || known.N+int64(a.maxWaiters) <= longQueue {
		return o, false, nil
	}
	t, revision, err := q.count(ctx)
	if err != nil {
		return o, false, err
	}
	l, stored, err := q.limit.Learn(t.records)
	if err != nil || !stored || l.N == 0 || t.others > 0 {
		return o, false, err
	}
	o = outlook{
		answer: queue.Enter, fits: t.light < l.N, free: l.N - t.light, revision: revision, limits: l.Revs,
		counted: t.light > longQueue, full: q.fullCount(l.N, t.light),
	}
	if t.light >= l.N+int64(a.maxWaiters) {
		o.answer = queue.Refuse
	}
	return o, true, nil
}

// behind describes the queue before a request as the Txn that wrote it has counted it. ok is false if
// that does not show how many wait.
func (q *sessionQueue) behind(c *ticket) (_ *full, ok bool) {
	l := q.limit.Seen()
	if !c.found.Known || c.found.Heavy || l == nil || l.Revs != c.at {
		return nil, false
	}
	return q.fullCount(l.N, int64(c.found.Ahead)), true
}

// hasRoom returns a *full if more requests wait for the total before one that waits there than
// KeyedLimiterOptions.MaxTotalWaiters allows.
func (q *sessionQueue) hasRoom(ctx context.Context, t *ticket) error {
	most := t.attempt.maxTotal()
	if most == 0 {
		return nil
	}
	full, ok := q.behind(t)
	if ok && full.waiting < most {
		return nil
	}
	if seen := q.limit.Seen(); !ok || seen == nil || seen.Lowered { // holders above a lowered limit are no waiters, and counts do not show them
		v, err := q.read(ctx)
		if err != nil {
			return err
		}
		for len(v.Waiters) > 0 && v.Waiters[len(v.Waiters)-1].Create >= t.Token {
			v.Waiters = v.Waiters[:len(v.Waiters)-1]
		}
		full = q.fullView(v, 0)
	}
	if full.waiting < most {
		return nil
	}
	return full
}
