package concurrency

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/queue"
	"github.com/etcdkit/etcdkit/observe"
)

// sessionQueue is one queue in etcd as one session uses it, with what users see of it: its name, its hooks, its
// share of the limit. All semaphores of a name, or all mutexes, share it.
type sessionQueue struct {
	*queue.Queue // nil if invalid is set
	sess         *engine.Session
	name         string
	own          *shared
	base         *base // the default limit, or nil
	kind         observe.Kind
	total        *sessionQueue // which a request joins when it is admitted here, or nil
	sharing      sharing       // of a semaphore or a total: this process's share of the limit without etcd
	leases       leases        // of holders, as the reports to waiters have found them
	adopted      adopted       // of a semaphore, a total or a rate
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

// errTried is the cause of the end of a ctx by TryTimeout.
var errTried = errors.New("tried long enough")

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

// tooHeavy returns the error of a weight that a limit of that level, which is empty for a semaphore's,
// can never admit.
func tooHeavy(level Level, weight, most int64) error {
	limit := map[Level]string{
		"":         "the limit of %d (SetLimit changes it)",
		LevelKey:   "the key's limit of %d (SetLimit of the key, or SetDefault, changes it)",
		LevelTotal: "the total of %d of all keys (KeyedLimiterOptions.Total; if it is stored already, SetLimit of Total changes it)",
	}[level]
	return invalid("Weight(%d) is above "+limit, weight, most)
}
