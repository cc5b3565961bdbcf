package concurrency

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

// watchPause is the least time between two reads of one Watch, for the key of a limiter.
const watchPause = 20 * time.Millisecond

// joined is what a read has shown of the requests in the total that belong to a key.
type joined struct {
	at       mirror.View // the queue of the key
	requests []mirror.Request
	held     int  // as many of the first are admitted
	missing  bool // a request that is admitted at the key has not joined yet
}

// watchBoth is watch for a key with a total. The two queues are followed by two watches, which may be
// ahead of each other, so these only show that something has changed; both queues are then read, as
// of one revision. Of the changes of the total only those count that concern a request of the key.
func (q *sessionQueue) watchBoth(ctx context.Context) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		st, in, err := q.bothNow(ctx)
		at, all := q.view.Join(), q.total.view.Join()
		defer at.Leave()
		defer all.Leave()
		var last *Status // that was yielded
		for err == nil {
			if last == nil || !st.equal(*last) {
				shown := st
				last = &shown
				if !yield(st, nil) {
					return
				}
			}
			read := time.Now()
			if err = q.concerned(ctx, at, all, in); err != nil {
				break
			}
			if err = sleep(ctx, watchPause-time.Since(read)); err == nil {
				st, in, err = q.bothAtLast(ctx)
			}
		}
		yield(Status{}, q.failed("watch", err))
	}
}

// bothNow reads both queues, and ends with ErrClosed if the session is closed.
func (q *sessionQueue) bothNow(ctx context.Context) (st Status, in joined, err error) {
	err = q.do(ctx, func(ctx context.Context) error {
		at, all, shared, err := q.both(ctx)
		st, in = q.describeBoth(at, all, shared), joined{at: at}
		for _, r := range at.Holders {
			if !shared {
				break
			}
			if t := q.nextOf(all.Holders, r); t != nil {
				in.requests = slices.Insert(in.requests, in.held, *t)
				in.held++
			} else if t = q.nextOf(all.Waiters, r); t != nil {
				in.requests = append(in.requests, *t)
			} else {
				in.missing = true
			}
		}
		return err
	})
	return st, in, err
}

// bothAtLast is bothNow, but only the end of ctx or of the session ends it.
func (q *sessionQueue) bothAtLast(ctx context.Context) (st Status, in joined, err error) {
	var pause commit.Backoff
	for {
		if st, in, err = q.bothNow(ctx); err == nil || ctx.Err() != nil || errors.Is(err, ErrClosed) {
			return st, in, err
		}
		_ = pause.Wait(ctx, nil)
	}
}

// concerned waits until a view shows a change after what was read that concerns the key.
func (q *sessionQueue) concerned(ctx context.Context, at, all *mirror.Use, in joined) error {
	for {
		v, changed := at.View()
		total, moved := all.Brief("", 0, 0)
		if isLater(v, in.at) || total.Revision > in.at.Revision && in.differs(all) {
			return nil
		}
		select {
		case <-changed:
		case <-moved:
		case <-at.Replaced: // history was taken back, and with it what was read
			at.Next()
			return nil
		case <-all.Replaced:
			all.Next()
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-q.sess.Accepting().Done():
			return ErrClosed
		}
	}
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

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
