package middleware

import (
	"context"
	"errors"
	"sync"
	"time"
)

// patience is the wait of one request for its permit. It ends as well when etcd has been silent for Patience: a request with a
// longer Wait would find the outage only at its end.
type patience struct {
	ctx    context.Context
	of     limit
	most   time.Duration
	cancel context.CancelCauseFunc
	timer  *time.Timer

	mu    sync.Mutex
	ended bool
}

// silence is the cause of the end of a wait by that.
type silence struct{ error }

// patient begins a wait of that length at most, and returns its context. The patience of a wait that ends before most is nil.
func patient(ctx context.Context, of limit, wait, most time.Duration) (context.Context, *patience) {
	if wait <= most {
		return ctx, nil
	}
	w := &patience{of: of, most: most}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(most, w.look)
	return w.ctx, w
}

// over ends the wait, and returns the error of its call: that of the silence in place of the end of the context. After nil,
// work may begin under the context.
func (w *patience) over(err error) error {
	if w == nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.timer.Stop()
	if s, ok := errors.AsType[*silence](context.Cause(w.ctx)); ok {
		return s.error
	}
	return err
}

// free ends the context, when the work has ended.
func (w *patience) free() {
	if w != nil {
		w.cancel(nil)
	}
}

// look ends the wait if etcd has been silent for too long, and otherwise looks again when that can be so.
func (w *patience) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	lasts, err := w.of.Silent()
	if err != nil && lasts >= w.most {
		w.cancel(&silence{err})
		return
	}
	w.timer.Reset(max(w.most-lasts, w.most/10))
}
