package concurrency

import (
	"context"
	"iter"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/queue"
)

// describe returns a state for callers.
func (q *sessionQueue) describe(st queue.State) Status {
	if !st.Known {
		st.Limit = 0
	}
	s := Status{
		Name: q.name, Limit: int(st.Limit), Stored: st.Known, Used: int(st.Used), Revision: st.Revision,
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
		seen := map[clientv3.LeaseID]leaseSeen{}
		for i := range holders {
			lease, known := seen[holders[i].Lease]
			if !known {
				if len(seen) == maxLeases {
					continue
				}
				if lease, err = askLease(ctx, sess, holders[i].Lease); err != nil {
					return err
				}
				seen[holders[i].Lease] = lease
			}
			holders[i].Renewed, holders[i].ExpiresBy = lease.renewed, lease.freesBy
		}
		return nil
	})
}
