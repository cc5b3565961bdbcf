package concurrency

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

// watchPause is the least time between two reads of one Watch, for the key of a limiter.
const watchPause = 20 * time.Millisecond

// state is a state of a queue, as it was read or as its mirror has shown it.
type state struct {
	Status
	view mirror.View
	in   joined // where there is a total
}

// describe returns what a view shows.
func (q *sessionQueue) describe(v mirror.View) Status {
	if !v.Known {
		v.Limit = 0
	}
	return Status{
		Name: q.name, Limit: int(v.Limit), Stored: v.Known, Used: int(v.Used), Revision: v.Revision,
		Holders: describeAll(v.Holders), Waiters: describeAll(v.Waiters), Foreign: v.Foreign,
	}
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
	if read.leases {
		checkLeases(ctx, q.sess, st.Holders)
	}
	return st.Status, nil
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
		v := q.views()
		defer v.leave()
		var last *Status // that was yielded
		for err == nil {
			if last == nil || !st.equal(*last) {
				shown := st.Status
				last = &shown
				if !yield(shown, nil) {
					return
				}
			}
			st, err = v.next(ctx, st)
		}
		yield(Status{}, q.failed("watch", err))
	}
}

// now reads the state: that of the queue, and where there is a total what of it holds there. It ends with
// ErrClosed if the session is closed.
func (q *sessionQueue) now(ctx context.Context) (st state, err error) {
	err = q.do(ctx, func(ctx context.Context) (err error) {
		if q.pair != nil {
			st, err = q.pair.state(ctx)
			return err
		}
		st.view, err = q.Read(ctx)
		st.Status = q.describe(st.view)
		return err
	})
	return st, err
}

// views are the mirrors of a queue, and where there is a total of that, as one Watch uses them.
type views struct {
	queue   *sessionQueue
	at, all *mirror.Use // all is nil without a total
}

func (q *sessionQueue) views() *views {
	v := &views{queue: q, at: q.View.Join()}
	if q.pair != nil {
		v.all = q.pair.total.View.Join()
	}
	return v
}

func (v *views) leave() {
	v.at.Leave()
	if v.all != nil {
		v.all.Leave()
	}
}

// next waits until a mirror shows a state after one that was seen. Where one watch does not bring
// everything, the mirrors may be ahead of each other and of the default limit: then they only show that
// something has changed, and it is read as of one revision.
func (v *views) next(ctx context.Context, seen state) (state, error) {
	q, read := v.queue, time.Now()
	view, replaced, err := v.changed(ctx, seen)
	switch {
	case err != nil:
		return state{}, err
	case q.base != nil:
		if err := pauseFor(ctx, watchPause-time.Since(read)); err != nil {
			return state{}, err
		}
	case !replaced:
		return state{Status: q.describe(view), view: view}, nil
	}
	return v.read(ctx)
}

// read is now, but only the end of ctx or of the session ends it.
func (v *views) read(ctx context.Context) (st state, err error) {
	var pause commit.Backoff
	for {
		if st, err = v.queue.now(ctx); err == nil || ctx.Err() != nil || errors.Is(err, ErrClosed) {
			return st, err
		}
		_ = pause.Wait(ctx, nil)
	}
}

// changed waits until a mirror shows a change after what was seen. Of the changes of the total only those
// count that concern a request of the key. replaced is set if history was taken back, and with it what was seen.
func (v *views) changed(ctx context.Context, seen state) (view mirror.View, replaced bool, err error) {
	for {
		var moved, totalReplaced <-chan struct{}
		concerns := false
		view, changed := v.at.View()
		if v.all != nil {
			var total mirror.Brief
			total, moved = v.all.Brief("", 0, 0)
			totalReplaced = v.all.Replaced
			concerns = total.Revision > seen.view.Revision && seen.in.differs(v.all)
		}
		if concerns || isLater(view, seen.view) {
			return view, false, nil
		}
		select {
		case <-changed:
		case <-moved:
		case <-v.at.Replaced:
			v.at.Next()
			return view, true, nil
		case <-totalReplaced:
			v.all.Next()
			return view, true, nil
		case <-ctx.Done():
			return view, false, ctx.Err()
		case <-v.queue.sess.Accepting().Done():
			return view, false, ErrClosed
		}
	}
}

// isLater reports whether a view shows a change of the queue or of its default after one that was
// seen.
func isLater(v, seen mirror.View) bool {
	return v.Revision > seen.Revision || v.Limits.Base.Rev > seen.Limits.Base.Rev
}

// differs reports whether a view of the total shows another state of the requests. Its cost does not
// depend on how many others there are.
func (in joined) differs(all *mirror.Use) bool {
	return in.missing || slices.ContainsFunc(in.requests[:in.held], func(r mirror.Request) bool {
		b, _ := all.Brief(r.Key, r.Create, 0)
		return !b.Holds
	}) || slices.ContainsFunc(in.requests[in.held:], func(r mirror.Request) bool {
		b, _ := all.Brief(r.Key, r.Create, 0)
		return !b.Waits
	})
}

func pauseFor(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
