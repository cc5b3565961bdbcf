package concurrency

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/hook"
	"github.com/etcdkit/etcdkit/internal/queue"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/observe"
)

// sessionQueue is one queue in etcd as one session uses it, with what users see of it: its name in errors, its
// state, its hooks. All semaphores of a name, or all mutexes, share it.
type sessionQueue struct {
	*queue.Queue // nil if invalid is set
	sess         *engine.Session
	name         string
	reportEvery  time.Duration
	base         *queue.Base // the default limit, or nil
	kind         observe.Kind
	total        *sessionQueue // which a request joins when it is admitted here, or nil
	saidBehind   sync.Once     // that a call waits for a permit of its own context
	panics       hook.Panics   // of options of middlewares
	invalid      error         // what every call returns, if the queue cannot exist
}

// at returns the queue of a level: this one, or that of the total.
func (q *sessionQueue) at(l queue.Level) *sessionQueue {
	if l == queue.AtTotal && q.total != nil {
		return q.total
	}
	return q
}

// isTotal reports whether this is the queue of a limiter's total.
func (q *sessionQueue) isTotal() bool { return q.invalid == nil && q.Level() == queue.AtTotal }

// do runs a call that ends with ErrClosed when the session accepts none with ctx any more.
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
func (q *sessionQueue) ending(token int64, cause error, reason string) *LostError {
	return &LostError{Name: q.name, Token: token, Cause: cause, Reason: reason}
}

// endingBy returns the end of a request or its permit by a notice.
func (q *sessionQueue) endingBy(token int64, n record.Notice) *LostError {
	if n.Cause == record.CauseReleased {
		return q.ending(token, ErrReleased, noticeReason(n))
	}
	return q.ending(token, ErrEvicted, noticeReason(n))
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

// unavailable returns why etcd cannot be asked, or nil if it answers.
func (q *sessionQueue) unavailable() *UnavailableError {
	if o, ok := q.sess.Unavailable(); ok {
		return unavailable(o)
	}
	return nil
}

// unanswered is unavailable for a call that began at a time and has no answer. It is never nil.
func (q *sessionQueue) unanswered(begun time.Time) *UnavailableError {
	o, _ := q.sess.Unanswered(begun)
	return unavailable(o)
}

// full is the form of a refusal for callers.
func (q *sessionQueue) full(f *queue.Full) *FullError {
	return &FullError{Name: q.at(f.Level()).name, Limit: int(f.Limit), Used: int(f.Used), Waiting: f.Waiting, unseen: f.Unseen, paused: f.Paused}
}

// describe returns a state for callers.
func (q *sessionQueue) describe(st queue.State) Status {
	if !st.Known {
		st.Limit = 0
	}
	s := Status{
		Name: q.name, Limit: int(st.Limit), Stored: st.Known, Unreadable: st.Unreadable(), Used: int(st.Used), Revision: st.Revision,
		Holders: describeAll(st.Holders), Waiters: describeAll(st.Waiters), Foreign: st.Foreign,
	}
	for i := range s.Waiters {
		switch {
		case !st.Total:
		case i < st.Joins:
			s.Waiters[i].WaitsFor = LevelTotal
		default:
			s.Waiters[i].WaitsFor = LevelKey
		}
	}
	return s
}

// status is Status of every kind of queue.
func (q *sessionQueue) status(ctx context.Context, opts []StatusOption) (Status, error) {
	var read statusRead
	if err := engine.Apply(opts, &read); err != nil {
		return Status{}, q.failed("status of", err)
	}
	st, err := q.now(ctx)
	if err != nil {
		return Status{}, q.failed("status of", err)
	}
	shown := q.describe(st)
	if read.leases {
		checkLeases(ctx, q.sess, shown.Holders)
	}
	return shown, nil
}

// watch yields the present state and then each later one; states that follow each other quickly may be
// skipped. A mirror may lag behind what the caller knows, so the first state is a linearizable read, and
// those count that a mirror shows from its revision on.
func (q *sessionQueue) watch(ctx context.Context) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		st, err := q.now(ctx)
		if err != nil {
			yield(Status{}, q.failed("watch", err))
			return
		}
		w := q.Watch()
		defer w.Leave()
		var last *Status // that was yielded
		for err == nil {
			if shown := q.describe(st); last == nil || !shown.equal(*last) {
				last = &shown
				if !yield(shown, nil) {
					return
				}
			}
			st, err = w.Next(ctx, st)
		}
		yield(Status{}, q.failed("watch", err))
	}
}

// now reads the state. It ends with ErrClosed if the session is closed.
func (q *sessionQueue) now(ctx context.Context) (queue.State, error) {
	if q.invalid != nil {
		return queue.State{}, q.invalid
	}
	return q.State(ctx)
}

// maxLeases bounds the leases that one Status asks about.
const maxLeases = 64

// checkLeases completes holders by what etcd says of their leases, as long as it answers.
func checkLeases(ctx context.Context, sess *engine.Session, holders []Request) {
	_ = sess.Do(ctx, func(ctx context.Context) (err error) {
		seen := map[clientv3.LeaseID]queue.LeaseState{}
		for i := range holders {
			lease, known := seen[holders[i].Lease]
			if !known {
				if len(seen) == maxLeases {
					continue
				}
				if lease, err = queue.AskLease(ctx, sess, holders[i].Lease); err != nil {
					return err
				}
				seen[holders[i].Lease] = lease
			}
			holders[i].Renewed, holders[i].ExpiresBy = lease.Renewed, lease.ExpiresBy
		}
		return nil
	})
}

// call describes a call in the queue.
func (q *sessionQueue) call(op observe.Op, weight, token int64) observe.Call {
	c := observe.Call{Op: op, Kind: q.kind, Name: q.name, Weight: int(weight), Token: token}
	switch {
	case q.kind == observe.Limiter:
		c.Name, c.Key, _ = strings.Cut(q.name, "/")
	case q.kind == observe.Election && op == observe.Acquire:
		c.Op = observe.Campaign
	case q.kind == observe.Election && op == observe.Hold:
		c.Op = observe.Lead
	}
	return c
}

// limitChanged reports that the session has seen another limit than before.
func (q *sessionQueue) limitChanged(from, to int64) {
	c := q.call("", 0, 0)
	q.sess.Post(observe.LimitChanged{Namespace: q.sess.Hooks().Namespace(), Kind: c.Kind, Name: c.Name, Key: c.Key, Level: string(q.Level()), From: int(from), To: int(to)})
}
