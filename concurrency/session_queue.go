package concurrency

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/crowd"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/observe"
)

// sessionQueue is one queue in etcd as one session uses it. All semaphores of a name, or
// all mutexes, share it and its mirror.
type sessionQueue struct {
	sess  *engine.Session
	own   *shared
	name  string
	kind  observe.Kind
	keys  keyspace.Queue
	view  *mirror.Shared
	limit limit.Kind
	base  *base         // the default limit, or nil
	total *sessionQueue // that of the total, which a request joins when it is admitted here, or nil

	limiter *KeyedLimiter // whose total this is, or nil
	sharing sharing       // of a semaphore or a total: this process's share of the limit without etcd

	subjects []string // the queues to which the Txn of a request belongs; none if each is sent alone

	invalid error // what every call returns, if the queue cannot exist

	mu      sync.Mutex
	checked time.Time                      // when foreign keys were last reported
	leases  map[clientv3.LeaseID]leaseSeen // of holders, as the reports to waiters have found them
	strays  []mirror.Stray                 // those that a view has shown last
	tries   map[int64]time.Time            // those that the last look has found, by token, and since when
	filled  filling                        // where there is a total

	crowd *crowd.Crowd // of the requests that wait
}

// run keeps a mirror of the queue up to date until it is stopped. It lives as long as
// its view, so that a caller that comes soon finds both.
func (q *sessionQueue) run(m *mirror.Mirror) (stop context.CancelFunc) {
	source, keys := q.sess.Source(), q.keys.Range
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
	q.limit.Forget()
	q.mu.Lock()
	q.strays, q.filled = nil, filling{} // a revision may be that of another state by now
	q.mu.Unlock()
	q.view.Replace()
	q.crowd.Front.Replace()
}

// ticket is one request that this session has written, or is about to, in one queue.
type ticket struct {
	*engine.Ticket // the whole request, in all queues
	queue          *sessionQueue
	attempt        *attempt // of the call, in this queue
	slot           keyspace.Slot
	Key            string // in this queue
	Token          int64
	found          mirror.Found
	strays         []mirror.Stray // those that its Txn reads
	at             limit.Revs     // by which it was admitted
	open           bool           // the limit there is above 0
	atOnce         bool           // its own Txn admits it
	nonce          string         // of its value, and of that in the total's queue
	came           func()         // is called when it waits
	next           *nextTicket    // that in the total's queue, if one Txn has written both
}

// stored returns the limit of a queue whose limit is stored.
func (q *sessionQueue) stored() *limit.Store { return q.limit.(*limit.Store) }

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

// gone frees the slot of a request whose key is gone in one queue.
func (q *sessionQueue) gone(e *engine.Epoch, c *ticket) {
	if c.attempt.of != nil { // its key's request may exist
		e.Withdraw(c.Ticket, q.refusal(c))
		return
	}
	e.Free(c.Ticket)
}

// refusal logs that etcd refuses to delete a request.
func (q *sessionQueue) refusal(c *ticket) func(error) {
	return func(err error) {
		q.sess.Log().Warn("etcd refuses to delete the key of a request that has ended; the session repeats it until its lease ends",
			zap.String("name", q.name), zap.Int64("token", c.Token), zap.Error(q.sess.Explain(err)))
	}
}
