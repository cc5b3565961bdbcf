package concurrency

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/queue"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/internal/share"
	"github.com/etcdkit/etcdkit/observe"
)

// sessionQueue is one queue in etcd as one session uses it, with what users see of it: its name, its hooks, its
// share of the limit. All semaphores of a name, or all mutexes, share it.
type sessionQueue struct {
	*queue.Queue // nil if invalid is set
	sess         *engine.Session
	name         string
	reportEvery  time.Duration
	base         *base // the default limit, or nil
	kind         observe.Kind
	total        *sessionQueue // which a request joins when it is admitted here, or nil
	sharing      sharing       // of a semaphore or a total: this process's share of the limit without etcd
	leases       leases        // of holders, as the reports to waiters have found them
	adopted      adopted       // of a semaphore, a total or a rate
	tally        rateTally     // of a rate: how calls have ended
	invalid      error         // what every call returns, if the queue cannot exist
}

// last returns the queue in which the permits are held, whose limit a session's share is part of.
func (q *sessionQueue) last() *sessionQueue {
	if q.total != nil {
		return q.total
	}
	return q
}

// at returns the queue of a level: this one, or that of the total.
func (q *sessionQueue) at(l queue.Level) *sessionQueue {
	if l == queue.AtTotal {
		return q.last()
	}
	return q
}

// isTotal reports whether this is the queue of a limiter's total.
func (q *sessionQueue) isTotal() bool { return q.invalid == nil && q.Level() == queue.AtTotal }

// do runs a call that ends when Close begins, with ErrClosed then.
func (q *sessionQueue) do(ctx context.Context, call func(context.Context) error) error {
	if q.invalid != nil {
		return q.invalid
	}
	return q.sess.Do(ctx, call)
}

// failed names the queue in an error, and says what to change if that denies permission.
func (q *sessionQueue) failed(doing string, err error) error {
	return q.named(doing, q.sess.Explain(err))
}

// named names the queue in an error, which may be that of a caller's function.
func (q *sessionQueue) named(doing string, err error) error {
	if _, ok := err.(*LostError); ok { //nolint:errorlint // it names the queue itself
		return err
	}
	return fmt.Errorf("%s %q: %w", doing, q.name, err)
}

// ending returns the end of a request or its permit. One in the queue of a total has the name of its
// key, as the permit has in all other reports.
func (q *sessionQueue) ending(t *queue.Ticket, cause error, reason string) *LostError {
	return &LostError{Name: q.name, Token: t.Token, Cause: cause, Reason: reason}
}

// endingBy returns the end of a request or its permit by a notice.
func (q *sessionQueue) endingBy(t *queue.Ticket, n record.Notice) *LostError {
	if n.Cause == record.CauseReleased {
		return q.ending(t, ErrReleased, noticeReason(n))
	}
	return q.ending(t, ErrEvicted, noticeReason(n))
}

// noticeReason returns the holder that has left a notice, and its reason.
func noticeReason(n record.Notice) string {
	switch {
	case n.By == "":
		return n.Reason
	case n.Reason == "":
		return "by " + n.By
	}
	return "by " + n.By + ": " + n.Reason
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
		q.sess.Background(queue.NewMember(q.Queue, s.share.Load().Count).Run)
	})
	return s.share.Load()
}
