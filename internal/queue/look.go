package queue

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/rank"
)

// outlook is what one state of the queue means for a request that has not been written yet
// and is refused if too many others are before it.
type outlook struct {
	answer   rank.Answer
	fits     bool  // it would be admitted at once
	free     int64 // weight that all requests in the queue leave of the limit
	full     *Full // what to return if the answer is no
	revision int64
	limits   limit.Revs
	view     *mirror.View // nil if the names of the requests were enough
	counted  bool         // the request is written without conditions, and its own Txn decides
}

// look reads the queue and says what it means for a request. Requests that this session was removing
// before the first look are about to go.
func (j *joining) look(ctx context.Context) (outlook, error) {
	q := j.Queue
	removed := j.removals.from(q)
	if j.Weight == 1 && j.ID == "" {
		if o, ok, err := j.lookAtCounts(ctx, removed); ok || err != nil {
			return o, err
		}
		if j.contends() && q.View.Brief().Waiting <= longQueue {
			return j.lookAtAll(ctx, removed) // names would not decide: the others are marked as tries
		}
		if o, ok, err := j.lookAtNames(ctx, removed); ok || err != nil {
			return o, err
		}
	}
	return j.lookAtAll(ctx, removed)
}

// lookAtAll is look where neither counts nor names decide.
func (j *joining) lookAtAll(ctx context.Context, removed []engine.Leaving) (outlook, error) {
	q := j.Queue
	for {
		v, err := q.Read(ctx)
		if err != nil {
			return outlook{}, err
		}
		switch {
		case v.Damaged:
			return outlook{}, limit.Unreadable(v.Limits.InForce())
		case !v.Known: // it was deleted
			if _, err := q.Limit.Init(ctx, j.Limit, j.Rate); err != nil {
				return outlook{}, err
			}
			continue
		case rank.TooHeavy(j.Weight, v.Limit):
			return outlook{}, q.tooHeavy(j.Weight, v.Limit)
		}
		j.count(&v, removed)
		o := outlook{
			answer: v.Queue.Bounded(0, j.Weight, j.MaxWaiters), fits: v.Queue.Bounded(0, j.Weight, 0) == rank.Enter,
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
// false if the whole queue has to be read: there are heavy requests, tries are in the way, or the limit is not
// known, pauses, or was lowered.
func (j *joining) lookAtNames(ctx context.Context, removed []engine.Leaving) (o outlook, ok bool, err error) {
	q := j.Queue
	seen := q.Limit.Seen()
	if seen == nil || seen.N == 0 || seen.Lowered {
		return o, false, nil
	}
	room := seen.N + int64(j.MaxWaiters)
	// With values, although only names count: without them etcd 3.7 leaves out the leases, too.
	l, err := q.List(ctx, clientv3.WithLimit(1+room+beyond+int64(len(removed))))
	if err != nil {
		return o, false, err
	}
	if seen.Revs != l.Records.Revs() {
		return o, false, nil // it is another limit by now
	}
	requests := l.Count     // foreign keys count, too: then the whole queue is read
	var others, going int64 // those that stay, and those that are being removed
	leaving := q.names(removed)
	for _, kv := range l.Requests {
		slot, parsed := q.Keys.ParseSlot(string(kv.Key))
		switch {
		case !parsed || kv.Lease == 0:
		case slot.Weight > 1:
			return o, false, nil
		case leaving[string(kv.Key)]:
			going++
		case !slot.Try || j.stays(kv.CreateRevision):
			others++
		}
	}
	o = outlook{
		answer: rank.Enter, fits: requests < seen.N, free: seen.N - requests, revision: l.Revision, limits: seen.Revs,
		full: q.fullCount(seen.N, requests),
	}
	switch {
	case others >= room:
		o.answer = rank.Refuse
	case others+going >= room && l.Count == int64(len(l.Requests)):
		o.answer = rank.Unclear
	}
	return o, o.answer != rank.Enter || requests < room, nil
}

// tries are the tries that the last look at a queue has found, by token, and since when.
type tries struct {
	mu    sync.Mutex
	since map[int64]time.Time
}

// found remembers which tries a queue has. It reports whether there are any.
func (t *tries) found(v *mirror.View) bool {
	found := map[int64]time.Time{}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range v.Requests() {
		if r.Try {
			found[r.Create] = t.since[r.Create]
			if found[r.Create].IsZero() {
				found[r.Create] = time.Now()
			}
		}
	}
	t.since = found
	return len(found) > 0
}

// linger reports whether a try was there for longer than patience.
func (t *tries) linger(token int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	since, known := t.since[token]
	return known && time.Since(since) > patience
}

// count has the tries of a view that stay count as other requests, and those that are being removed as tries.
func (j *joining) count(v *mirror.View, removed []engine.Leaving) {
	if j.Queue.tries.found(v) {
		v.Queue.Unmark(j.stays)
	}
	if len(removed) > 0 {
		leaving := j.Queue.names(removed)
		v.Queue.Leave(func(key string) bool { return leaving[key] })
	}
}

// stays reports whether a try holds or waits, and is not about to go: it is a permit of
// this session's lease, or this session has seen it for longer than its patience.
func (j *joining) stays(token int64) bool {
	return j.Queue.tries.linger(token) || j.epoch.Holds(j.Queue.Keys.Range, token)
}

// longQueue is how many requests the queue of a total may have for tries to look at their names, and to
// be written on the condition that no other request has come: that costs etcd 2 µs for each request
// that is there, and all of it while it applies nothing else. In a longer queue counts decide (N7 in
// internal/proof/tested-failures.md): then a try may be refused because of another that is refused at the same
// moment.
const longQueue = 256

// lookAtCounts is look for a request of weight 1 in the queue of a total that admits more than a
// long queue has. ok is false if counts do not decide.
func (j *joining) lookAtCounts(ctx context.Context, removed []engine.Leaving) (o outlook, ok bool, err error) {
	q := j.Queue
	known := q.Limit.Seen()
	if q.atKey == nil || known == nil || known.N == 0 || known.N+int64(j.MaxWaiters) <= longQueue {
		return o, false, nil
	}
	t, revision, err := q.Count(ctx)
	if err != nil {
		return o, false, err
	}
	l, stored, err := q.Limit.Learn(t.Records)
	if err != nil || !stored || l.N == 0 || t.Others > 0 {
		return o, false, err
	}
	o = outlook{
		answer: rank.Enter, fits: t.Light < l.N, free: l.N - t.Light, revision: revision, limits: l.Revs,
		counted: t.Light > longQueue, full: q.fullCount(l.N, t.Light),
	}
	if !o.full.without(0, j.MaxWaiters) {
		return o, true, nil
	}
	refused, err := q.tooFull(ctx, o.full, removed, j.MaxWaiters, revision)
	if o.answer = rank.Unclear; refused {
		o.answer = rank.Refuse
	}
	return o, err == nil, err
}
