package exporter

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

// settleEvery is how often the exporter computes which requests hold permits. So its work is bounded,
// however many changes there are.
const settleEvery = time.Second

// Run follows the namespace until ctx ends, and returns ctx's error. Every failure (a lost connection,
// a compacted revision, a missing permission) is repeated with a growing pause and then the namespace
// is read again; meanwhile etcdkit_exporter_up becomes 0. A second call while Run is active returns
// ErrInvalid. After Run has returned, it may be called again.
func (e *Exporter) Run(ctx context.Context) error {
	if !e.running.CompareAndSwap(false, true) {
		return fmt.Errorf("run exporter of %q: %w", e.space.Root(), invalid("Run is active already"))
	}
	defer e.running.Store(false)
	e.source.Repeat(ctx, e.space.Root(), func(pause *commit.Backoff) error {
		err := e.follow(ctx, pause)
		e.failed(ctx, err)
		return err
	})
	return ctx.Err()
}

// errRefresh ends a watch because it is time to read the namespace again.
var errRefresh = errors.New("the namespace is read again")

// follow reads the namespace and then follows its changes.
func (e *Exporter) follow(ctx context.Context, pause *commit.Backoff) error {
	began := e.now()
	fresh, revision, err := e.list(ctx)
	if err != nil {
		return err
	}
	e.replace(fresh, revision, began)
	pause.Reset()
	listed := time.Now()
	return e.source.Open(ctx, mirror.Opening{
		Prefix: e.space.Root(), From: revision + 1, Probe: e.opts.Probe, Received: e.received,
		Period: settleEvery, Tick: func() error {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.state.settle(e.now())
			if time.Since(listed) > e.opts.Refresh {
				return errRefresh
			}
			return nil
		},
	})
}

// failed logs the first of several failures in a row.
func (e *Exporter) failed(ctx context.Context, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ctx.Err() != nil || e.silent || e.up() || errors.Is(err, errRefresh) || errors.Is(err, rpctypes.ErrCompacted) {
		return
	}
	e.silent = true
	e.opts.Logger.Warn("the exporter cannot read the namespace; it repeats that", zap.String("prefix", e.space.Root()), zap.Error(err))
}

// up reports whether etcd has confirmed the state lately. e must be locked.
func (e *Exporter) up() bool {
	return !e.answered.IsZero() && time.Since(e.answered) <= 3*e.opts.Probe
}

// replace replaces the state by what was read, as of a time at which it was not older.
func (e *Exporter) replace(fresh *state, revision, asOf int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state != nil {
		fresh.inherit(e.state)
	}
	e.state, e.revision = fresh, revision
	fresh.settle(e.now())
	fresh.asOf = asOf
	e.answered, e.silent = time.Now(), false
	e.lists++
}

// received applies a response of the watch.
func (e *Exporter) received(resp clientv3.WatchResponse) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	// What happened while the watch was interrupted arrives late, and says nothing about clocks.
	live, now := time.Since(e.answered) <= 2*e.opts.Probe, e.now()
	for _, ev := range resp.Events {
		if ev.Type == clientv3.EventTypeDelete {
			e.state.remove(string(ev.Kv.Key))
			continue
		}
		e.state.put(ev.Kv, now)
		if live {
			e.state.measure(ev.Kv, now)
		}
	}
	e.revision = max(e.revision, resp.Header.Revision)
	if n := len(resp.Events); n > 0 {
		e.revision = resp.Events[n-1].Kv.ModRevision
	}
	e.state.revision, e.state.asOf = e.revision, now
	e.answered = time.Now()
	return nil
}
