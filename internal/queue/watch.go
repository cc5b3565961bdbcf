package queue

import (
	"context"
	"errors"
	"time"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

// watchPause is the least time between two reads of one Watch, for the key of a limiter.
const watchPause = 20 * time.Millisecond

// Watch is the mirrors of a queue, and where there is a total of that, as one caller follows them.
type Watch struct {
	queue   *Queue
	at, all *mirror.Use // all is nil without a total
}

// Watch begins to follow the queue, until Leave.
func (q *Queue) Watch() *Watch {
	w := &Watch{queue: q, at: q.View.Join()}
	if q.pair != nil {
		w.all = q.pair.total.View.Join()
	}
	return w
}

// Leave ends it. It is called once.
func (w *Watch) Leave() {
	w.at.Leave()
	if w.all != nil {
		w.all.Leave()
	}
}

// Next waits until a mirror shows a state after one that was seen. Where one watch does not bring
// everything, the mirrors may be ahead of each other and of the default limit: then they only show that
// something has changed, and it is read as of one revision. It ends with the error of ctx, or engine.ErrClosed.
func (w *Watch) Next(ctx context.Context, seen State) (State, error) {
	read := time.Now()
	view, replaced, err := w.changed(ctx, seen)
	switch {
	case err != nil:
		return State{}, err
	case w.queue.base != nil:
		if err := pauseFor(ctx, watchPause-time.Since(read)); err != nil {
			return State{}, err
		}
	case !replaced:
		return State{View: view}, nil
	}
	return w.read(ctx)
}

// read is State, but only the end of ctx or of the session ends it.
func (w *Watch) read(ctx context.Context) (st State, err error) {
	var pause commit.Backoff
	for {
		if st, err = w.queue.State(ctx); err == nil || ctx.Err() != nil || errors.Is(err, engine.ErrClosed) {
			return st, err
		}
		_ = pause.Wait(ctx, nil)
	}
}

// changed waits until a mirror shows a change after what was seen. Of the changes of the total only those
// count that concern a request of the key. replaced is set if history was taken back, and with it what was seen.
func (w *Watch) changed(ctx context.Context, seen State) (view mirror.View, replaced bool, err error) {
	for {
		var moved, totalReplaced <-chan struct{}
		concerns := false
		view, changed := w.at.View()
		if w.all != nil {
			var total mirror.Brief
			total, moved = w.all.Brief("", 0, 0)
			totalReplaced = w.all.Replaced
			concerns = total.Revision > seen.Revision && seen.moved(w.all)
		}
		if concerns || isLater(view, seen.View) {
			return view, false, nil
		}
		select {
		case <-changed:
		case <-moved:
		case <-w.at.Replaced:
			w.at.Next()
			return view, true, nil
		case <-totalReplaced:
			w.all.Next()
			return view, true, nil
		case <-ctx.Done():
			return view, false, ctx.Err()
		case <-engine.Accepts(ctx, w.queue.sess).Done():
			return view, false, engine.ErrClosed
		}
	}
}

// isLater reports whether a view shows a change of the queue or of its default after one that was
// seen.
func isLater(v, seen mirror.View) bool {
	return v.Revision > seen.Revision || v.Limits.Base.Rev > seen.Limits.Base.Rev
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
