package concurrency

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdkit/etcdkit/internal/crowd"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/queue"
	"github.com/etcdkit/etcdkit/observe"
)

// sessionQueue is one queue in etcd as one session uses it. All semaphores of a name, or
// all mutexes, share it and its mirror.
type sessionQueue struct {
	queue.Reader
	sess     *engine.Session
	name     string
	own      *shared
	base     *base // the default limit, or nil
	kind     observe.Kind
	pair     *pair    // with the total, which a request joins when it is admitted here, or nil
	numbered string   // the range of the queue that numbers the requests of this one
	subjects []string // the queues to which the Txn of a request belongs; none if each is sent alone

	limiter *KeyedLimiter // whose total this is, or nil
	sharing sharing       // of a semaphore or a total: this process's share of the limit without etcd
	invalid error         // what every call returns, if the queue cannot exist

	crowd  *crowd.Crowd // of the requests that wait
	leases leases       // of holders, as the reports to waiters have found them
	tries  tries
}

// run keeps a mirror of the queue up to date until it is stopped. It lives as long as
// its view, so that a caller that comes soon finds both.
func (q *sessionQueue) run(m *mirror.Mirror) (stop context.CancelFunc) {
	source, keys := q.sess.Source(), q.Keys.Range
	ctx, cancel := context.WithCancel(q.sess.Context())
	detach := func() {}
	if q.base != nil {
		detach = q.base.attach(m)
	}
	q.sess.Background(func() { source.Follow(ctx, keys, 0, m) })
	return func() { cancel(); detach() }
}

// reset has the queue forget what it has seen; calls that wait or watch go over to a new mirror.
func (q *sessionQueue) reset() {
	q.Forget()
	q.pair.forget()
	q.View.Replace()
	q.crowd.Front.Replace()
}

// last returns the queue in which the permits are held, whose limit a session's share is part of.
func (q *sessionQueue) last() *sessionQueue {
	if q.pair != nil {
		return q.pair.total
	}
	return q
}

// stored returns the limit of a queue whose limit is stored.
func (q *sessionQueue) stored() *limit.Store { return q.Limit.(*limit.Store) }

// do runs a call that ends when Close begins, with ErrClosed then.
func (q *sessionQueue) do(ctx context.Context, call func(context.Context) error) error {
	if q.invalid != nil {
		return q.invalid
	}
	return q.sess.Do(ctx, call)
}

var (
	errWaited = errors.New("waited long enough")
	errTried  = errors.New("tried long enough")
	errAnew   = errors.New("the request is gone; it queues anew")
)

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
