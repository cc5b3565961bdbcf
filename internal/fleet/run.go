package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

// settleEvery is how often a Fleet computes which requests hold permits. So its work is bounded,
// however many changes there are.
const settleEvery = time.Second

// Run follows the namespace until ctx ends, and returns ctx's error. Every failure (a lost connection,
// a compacted revision, a missing permission) is repeated with a growing pause and then the namespace
// is read again; meanwhile Meta.Up becomes false. A second call while Run is active returns
// ErrActive. After Run has returned, it may be called again.
func (f *Fleet) Run(ctx context.Context) error {
	if !f.running.CompareAndSwap(false, true) {
		return fmt.Errorf("follow %q: %w", f.space.Root(), ErrActive)
	}
	defer f.running.Store(false)
	f.source.Repeat(ctx, f.space.Root(), func(pause *commit.Backoff) error {
		err := f.follow(ctx, pause)
		f.failed(ctx, err)
		return err
	})
	return ctx.Err()
}

// errRefresh ends a watch because it is time to read the namespace again.
var errRefresh = errors.New("the namespace is read again")

// follow reads the namespace and then follows its changes.
func (f *Fleet) follow(ctx context.Context, pause *commit.Backoff) error {
	began := f.now()
	fresh, revision, err := f.list(ctx, f.opts.Only...)
	if err != nil {
		return err
	}
	f.replace(fresh, revision, began)
	pause.Reset()
	listed := time.Now()
	return f.source.Open(ctx, mirror.Opening{
		Prefix: f.space.Root(), From: revision + 1, Probe: f.opts.Probe, Received: f.received,
		Period: settleEvery, Tick: func() error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.state.Settle(f.now())
			if time.Since(listed) > f.opts.Refresh {
				return errRefresh
			}
			return nil
		},
	})
}

// failed logs the first of several failures in a row.
func (f *Fleet) failed(ctx context.Context, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() == nil && !errors.Is(err, errRefresh) {
		f.failure = err
		f.wake()
	}
	if ctx.Err() != nil || f.silent || f.up() && !errors.Is(err, mirror.ErrSilent) || errors.Is(err, errRefresh) || errors.Is(err, rpctypes.ErrCompacted) {
		return
	}
	if errors.Is(err, mirror.ErrSilent) && !f.answered.IsZero() {
		f.warnOfSilence()
		return
	}
	f.silent = true
	f.opts.Logger.Warn("the state of the namespace cannot be read; that is repeated", zap.String("prefix", f.space.Root()), zap.Error(err))
}

// warnOfSilence logs, once until a watch answers again, that the namespace is read anew in place of the answers. f must
// be locked.
func (f *Fleet) warnOfSilence() {
	if f.unprobed {
		return
	}
	f.unprobed = true
	f.opts.Logger.Warn("the watch of the namespace does not answer, so all of the namespace is read again each time; behind etcd's gRPC proxy it never does",
		zap.String("prefix", f.space.Root()), zap.Duration("every", 3*f.opts.Probe))
}

// up reports whether etcd has confirmed the state lately. f must be locked.
func (f *Fleet) up() bool {
	return !f.answered.IsZero() && time.Since(f.answered) <= 3*f.opts.Probe
}

// replace replaces the state by what was read, as of a time at which it was not older.
func (f *Fleet) replace(fresh *State, revision, asOf int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state != nil {
		fresh.inherit(f.state)
	}
	f.state, f.revision = fresh, revision
	fresh.Settle(f.now())
	fresh.asOf = asOf
	f.answered, f.silent, f.failure = time.Now(), false, nil
	f.lists++
	f.version++
	f.wake()
}

// received applies a response of the watch.
func (f *Fleet) received(resp clientv3.WatchResponse) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	// What happened while the watch was interrupted arrives late, and says nothing about clocks.
	live, now := time.Since(f.answered) <= 2*f.opts.Probe, f.now()
	for _, ev := range resp.Events {
		if ev.Type == clientv3.EventTypeDelete {
			f.state.Remove(string(ev.Kv.Key))
			if live {
				f.state.cooled(string(ev.Kv.Key), now)
			}
			continue
		}
		f.state.Put(ev.Kv, now)
		if live {
			f.state.measure(ev.Kv, now)
			f.state.resumed(ev.Kv, now)
		}
	}
	f.revision = max(f.revision, resp.Header.Revision)
	f.unprobed = f.unprobed && len(resp.Events) > 0 // a response without events is an answer
	if n := len(resp.Events); n > 0 {
		f.version++
		f.revision = resp.Events[n-1].Kv.ModRevision
	}
	f.state.revision, f.state.asOf = f.revision, now
	f.answered, f.failure = time.Now(), nil
	f.wake()
	return nil
}
