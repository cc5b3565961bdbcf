package concurrency

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/queue"
)

// outlook is what one state of the queue means for a request that has not been written yet
// and is refused if too many others are before it.
type outlook struct {
	answer   queue.Answer
	fits     bool  // it would be admitted at once
	free     int64 // weight that all requests in the queue leave of the limit
	full     *full // what to return if the answer is no
	revision int64
	limits   limit.Revs
	view     *mirror.View // nil if the names of the requests were enough
	counted  bool         // the request is written without conditions, and its own Txn decides
}

// look reads the queue and says what it means for a request. Requests that this session was removing
// before that are about to go.
func (q *sessionQueue) look(ctx context.Context, e *engine.Epoch, a *attempt) (outlook, error) {
	leaving := e.Leaving(q.numbered())
	if a.weight == 1 && !a.hasID {
		if o, ok, err := q.lookAtCounts(ctx, a); err != nil || ok && (o.answer != queue.Refuse || o.full.without(len(leaving), a.maxWaiters)) {
			return o, err
		}
		if o, ok, err := q.lookAtNames(ctx, e, a, leaving); ok || err != nil {
			return o, err
		}
	}
	for {
		v, err := q.read(ctx)
		if err != nil {
			return outlook{}, err
		}
		switch {
		case v.Damaged:
			return outlook{}, limit.ErrUnreadable
		case !v.Known: // it was deleted
			if _, err := q.limit.InitRate(ctx, a.limit, a.rate); err != nil {
				return outlook{}, err
			}
			continue
		case queue.TooHeavy(a.weight, v.Limit):
			return outlook{}, tooHeavy(q.level(), a.weight, v.Limit)
		}
		q.keep(e, &v, leaving)
		o := outlook{
			answer: v.Queue.Bounded(0, a.weight, a.maxWaiters), fits: v.Queue.Bounded(0, a.weight, 0) == queue.Enter,
			full: q.fullView(v, 0), free: v.Limit, revision: v.Revision, limits: limit.RevsOf(v.Limits), view: &v,
		}
		for _, other := range v.Requests() {
			o.free -= other.Weight
		}
		return o, nil
	}
}

// beyond is how many names more than necessary are read, so that with a few tries
// among them enough others are left to decide.
const beyond = 16

// lookAtNames is look for requests of weight 1 where the names of the requests decide: a
// range not much longer than the limit, however many wait, whose values are not decoded. ok is
// false if the whole queue has to be read: there are heavy requests, only tries or requests that
// are being removed are in the way, or the limit is not known, pauses, or was lowered.
func (q *sessionQueue) lookAtNames(ctx context.Context, e *engine.Epoch, a *attempt, leaving map[string]bool) (o outlook, ok bool, err error) {
	seen := q.limit.Seen()
	if seen == nil || seen.N == 0 || seen.Lowered {
		return o, false, nil
	}
	room := seen.N + int64(a.maxWaiters)
	// With values, although only names count: without them etcd 3.7 leaves out the leases, too.
	l, err := q.list(ctx, clientv3.WithLimit(1+room+beyond+int64(len(leaving))))
	if err != nil {
		return o, false, err
	}
	if seen.Revs != l.records.Revs() {
		return o, false, nil // it is another limit by now
	}
	requests := l.count // foreign keys count, too: then the whole queue is read
	var others int64    // those that stay
	for _, kv := range l.requests {
		slot, parsed := q.keys.ParseSlot(string(kv.Key))
		switch {
		case !parsed || kv.Lease == 0:
		case slot.Weight > 1:
			return o, false, nil
		case !leaving[string(kv.Key)] && (!slot.Try || q.stays(e, kv.CreateRevision)):
			others++
		}
	}
	o = outlook{
		answer: queue.Enter, fits: requests < seen.N, free: seen.N - requests, revision: l.revision, limits: seen.Revs,
		full: &full{queue: q, limit: seen.N, used: seen.N, waiting: int(requests - seen.N)},
	}
	if others >= room {
		o.answer = queue.Refuse
	}
	return o, others >= room || requests < room, nil
}

// keep remembers which tries a queue has, and counts those that stay as other requests, and those that
// are being removed as tries.
func (q *sessionQueue) keep(e *engine.Epoch, v *mirror.View, leaving map[string]bool) {
	tries := map[int64]time.Time{}
	q.mu.Lock()
	for _, r := range v.Requests() {
		if !r.Try {
			continue
		}
		since, known := q.tries[r.Create]
		if !known {
			since = time.Now()
		}
		tries[r.Create] = since
	}
	q.tries = tries
	q.mu.Unlock()
	if len(tries) > 0 {
		v.Queue.Keep(func(token int64) bool { return q.stays(e, token) })
	}
	if len(leaving) > 0 {
		v.Queue.Leave(func(key string) bool { return leaving[key] })
	}
}

// stays reports whether a try holds or waits, and is not about to go: it is a permit of
// this session's lease, or this session has seen it for longer than its patience.
func (q *sessionQueue) stays(e *engine.Epoch, token int64) bool {
	q.mu.Lock()
	since, known := q.tries[token]
	q.mu.Unlock()
	return known && time.Since(since) > patience || e.Holds(q.keys.Range, token)
}
