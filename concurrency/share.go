package concurrency

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/concurrency/internal/share"
	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Share is the part of a limit that this process may use while it cannot reach etcd, under the
// outage policy Share of limithttp and limitgrpc.
type Share struct {
	Limit    int // as last read from etcd; 0 if it is not known
	Sessions int // that share the limit, as last counted; 0 if that is not known
	Size     int // Limit divided by Sessions, rounded down; 0 if Sessions is 0
	// Running is the weight of the requests of this process that run under its share and have no
	// permit yet.
	Running int
	// Permits is the weight of the permits that this process was granted and has not released, lost
	// ones included. In an outage they use the share as well.
	Permits int
}

// Share returns this process's share of the limit, as last known; it does no I/O. That of a
// KeyedLimiter is the share of its Total. ok is false if no middleware of this session has the
// outage policy Share for this limit.
//
// Only requests of such a middleware run under the share. Another call for a permit, such as Acquire
// of the same limiter, does not run without a permit, and after an outage it does not wait until
// the work under the share has permits: what runs in all processes is then bounded by twice the limit
// for this outage, as during it; each later cut of other processes can add the limit once more. Its
// permits count in Permits.
func (s *Semaphore) Share() (_ Share, ok bool) {
	shared := s.in().queue.sharing.share.Load()
	if shared == nil {
		return Share{}, false
	}
	f := shared.Facts()
	return Share{int(f.Limit), int(f.Sessions), int(f.Size()), int(f.Running), int(f.Permits)}, true
}

// Shared returns this process's share of the limit, for the middlewares, or why it has none.
func (s semaphore) Shared() (*share.Share, error) {
	q := s.queue
	switch {
	case q == nil, q.base != nil && q.invalid == nil: // the second is the semaphore of one key, in Single
		return nil, invalid("the outage policy Share needs a limit of all keys together: a KeyedLimiter with a total, or Single of a NewSemaphore")
	case q.invalid != nil:
		return nil, invalid("the outage policy Share divides the total of limiter %q, and %w", q.name, q.invalid)
	}
	return q.sharing.of(q), nil
}

// sharing is a session's share of the limit of a queue.
type sharing struct {
	permits atomic.Int64 // weight of the permits that were granted and not released
	once    sync.Once
	share   atomic.Pointer[share.Share] // nil if no middleware uses it
}

// of returns the share of the queue's limit, and has the sessions counted from now on.
func (s *sharing) of(q *sessionQueue) *share.Share {
	s.once.Do(func() {
		s.share.Store(share.New(share.Source{Trusted: q.sess.Trusted, Permits: s.permits.Load, Limit: func() int64 { return limit.SeenN(q.Limit) }}))
		m := newMember(q, s.share.Load())
		q.sess.Background(m.run)
	})
	return s.share.Load()
}

// countEvery is how often a session counts the sessions that share a limit; with a TTL below three
// times that, it is more often.
const countEvery = 5 * time.Second

// member keeps the key that says that a session shares a limit, and the count of such keys.
type member struct {
	queue  *sessionQueue
	share  *share.Share
	every  time.Duration
	alone  time.Duration    // how long after it has joined some may not have counted it
	lease  clientv3.LeaseID // on which the key was written
	joined time.Time        // when that was
}

func newMember(q *sessionQueue, s *share.Share) *member {
	every := min(q.sess.TTL()/3, countEvery)
	return &member{queue: q, share: s, every: every, alone: every + q.sess.TTL()}
}

// run counts until Close begins.
func (m *member) run() {
	sess := m.queue.sess
	for ctx := sess.Accepting(); ; {
		e, err := sess.Live(ctx)
		if err != nil {
			return
		}
		if err := m.count(ctx, e); err != nil {
			sess.Log().Debug("the sessions that share a limit could not be counted yet", zap.String("name", m.queue.name), zap.Error(err))
		}
		select {
		case <-time.After(m.every):
		case <-ctx.Done():
			return
		}
	}
}

// count reads the limit and the number of sessions, in one Txn that also writes the key if it is
// not there. The number counts only once all others have counted this session as well, or have lost
// their leases since they last counted: two sessions that lose etcd together never divide a limit by
// numbers that leave each other out.
func (m *member) count(ctx context.Context, e *engine.Epoch) error {
	q, space := m.queue, m.queue.sess.Space()
	key := space.Member(q.Keys, int64(e.Lease()))
	reads := q.Limit.Reads()
	ops := append(reads, clientv3.OpGet(space.Members(q.Keys), clientv3.WithPrefix(), clientv3.WithCountOnly()), clientv3.OpGet(key, clientv3.WithCountOnly()))
	joins := m.lease != e.Lease()
	if joins {
		m.share.Count(0) // what was known ends with the outage
		value := record.Session{Owner: q.sess.Owner(), AtMS: time.Now().UnixMilli()}.Encode()
		ops = append(ops, clientv3.OpPut(key, value, clientv3.WithLease(e.Lease())))
	}
	asked := time.Now()
	call, cancel := commit.Call(ctx)
	defer cancel()
	resp, err := q.sess.KV().Txn(call).Then(ops...).Commit()
	if err != nil {
		return err
	}
	if _, _, err = q.Limit.Learn(q.Limit.Records(resp.Responses)); err != nil {
		return err
	}
	counts := resp.Responses[len(reads):]
	sessions, own := counts[0].GetResponseRange().Count, counts[1].GetResponseRange().Count
	switch {
	case joins:
		m.lease, m.joined = e.Lease(), time.Now()
	case own == 0:
		m.lease = 0 // it was deleted by hand
	}
	if joins || own == 0 || asked.Sub(m.joined) < m.alone {
		sessions = 0
	}
	m.share.Count(sessions)
	return nil
}
