package queue

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/internal/share"
)

// countEvery is how often a session counts the sessions that share a limit; with a TTL below three
// times that, it is more often.
const countEvery = 5 * time.Second

// Sharing is a session's share of the limit of a queue, which it uses without etcd.
type Sharing struct {
	queue   *Queue
	permits atomic.Int64 // weight of the permits that were granted and not released
	once    sync.Once
	share   atomic.Pointer[share.Share]
}

// Share returns the share, or nil if Divide was not called.
func (s *Sharing) Share() *share.Share { return s.share.Load() }

// Divide returns the share, and has the sessions counted from now on.
func (s *Sharing) Divide() *share.Share {
	s.once.Do(func() {
		q := s.queue
		s.share.Store(share.New(share.Source{Trusted: q.sess.Trusted, Permits: s.permits.Load, Limit: func() int64 { return limit.SeenN(q.Limit) }}))
		q.sess.Background(newMember(q, s.Share().Count).run)
	})
	return s.Share()
}

// member keeps the key that says that a session shares the limit of a queue, and the count of such keys.
type member struct {
	queue   *Queue
	counted func(sessions int64)
	every   time.Duration
	alone   time.Duration    // how long after it has joined some may not have counted it
	lease   clientv3.LeaseID // on which the key was written
	joined  time.Time        // when that was
}

// newMember returns the member of a queue's session. counted is called with each count, 0 if that is not known.
func newMember(q *Queue, counted func(sessions int64)) *member {
	every := min(q.sess.TTL()/3, countEvery)
	return &member{queue: q, counted: counted, every: every, alone: every + q.sess.TTL()}
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
			sess.Log().Debug("the sessions that share a limit could not be counted yet", zap.String("name", m.queue.Name), zap.Error(err))
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
	ops := append(slices.Clip(reads), clientv3.OpGet(space.Members(q.Keys), clientv3.WithPrefix(), clientv3.WithCountOnly()), clientv3.OpGet(key, clientv3.WithCountOnly()))
	joins := m.lease != e.Lease()
	if joins {
		m.counted(0) // what was known ends with the outage
		value := record.Session{Owner: q.sess.Owner(), AtMS: time.Now().UnixMilli()}.Encode()
		ops = append(ops, clientv3.OpPut(key, value, clientv3.WithLease(e.Lease())))
	}
	asked := time.Now()
	call, cancel := commit.Call(ctx)
	defer cancel()
	resp, err := q.KV.Txn(call).Then(ops...).Commit()
	if err != nil {
		return err
	}
	if _, _, err = q.Limit.Learn(q.Limit.Records(resp.Responses, resp.Header.Revision)); err != nil {
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
	m.counted(sessions)
	return nil
}
