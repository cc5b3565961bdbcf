package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

// errRefresh ends a watch because the namespace was read again.
var errRefresh = errors.New("the namespace was read again")

// reading is what a list of the namespace has found.
type reading struct {
	state    *State
	revision int64 // up to which the state is complete
	asOf     int64 // a time at which it was not older
	at       time.Time
}

// read lists the namespace.
func (f *Fleet) read(ctx context.Context) (got reading, err error) {
	got.asOf = f.now()
	got.state, got.revision, err = f.list(ctx, f.opts.Only...)
	got.at = time.Now()
	return got, err
}

// follow reads the namespace and then follows its changes.
func (f *Fleet) follow(ctx context.Context, pause *commit.Backoff) error {
	got, err := f.read(ctx)
	if err == nil {
		f.replace(got)
	}
	for err == nil {
		pause.Reset()
		if got, err = f.watch(ctx, got.revision+1); err == nil {
			f.catchUp(got)
			f.source.NextStream()
		}
	}
	return err
}

// watch follows the changes from a revision on, until the namespace was read again beside that: its state stays confirmed
// meanwhile, however long a list takes.
func (f *Fleet) watch(ctx context.Context, from int64) (reading, error) {
	ctx, cancel := context.WithCancel(ctx)
	var got reading
	var failed error
	read := make(chan struct{})
	var reads sync.WaitGroup
	reads.Go(func() {
		defer close(read)
		select {
		case <-time.After(f.opts.Refresh):
			got, failed = f.read(ctx)
		case <-ctx.Done():
			failed = ctx.Err()
		}
	})
	defer reads.Wait()
	defer cancel()
	err := f.source.Open(ctx, mirror.Opening{
		Prefix: f.space.Root(), From: from, Probe: f.opts.Probe, Received: f.received,
		Period: settleEvery, Tick: func() error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.state.Settle(f.now())
			select {
			case <-read:
				return errRefresh
			default:
				return nil
			}
		},
	})
	if errors.Is(err, errRefresh) {
		return got, failed
	}
	return reading{}, err
}

// failed logs the first of several failures in a row.
func (f *Fleet) failed(ctx context.Context, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() == nil {
		f.failure = err
		f.wake()
	}
	if ctx.Err() != nil || f.silent || f.up() && !errors.Is(err, mirror.ErrSilent) || errors.Is(err, rpctypes.ErrCompacted) {
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

// replace replaces the state by what was read.
func (f *Fleet) replace(got reading) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.publish(got)
}

// catchUp replaces the state by what was read beside a watch, which may have seen more by then: the next watch begins with
// that, and until it has come as far the state stays as it is.
func (f *Fleet) catchUp(got reading) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if got.revision < f.revision {
		f.next = &got
		return
	}
	f.publish(got)
}

// publish replaces the state. f must be locked.
func (f *Fleet) publish(got reading) {
	if f.state != nil {
		got.state.inherit(f.state)
	}
	f.state, f.revision, f.next = got.state, got.revision, nil
	f.state.Settle(f.now())
	f.state.asOf = got.asOf
	f.answered, f.silent, f.failure = time.Now(), false, nil
	f.lists++
	f.version++
	f.wake()
}

// received applies a response of the watch.
func (f *Fleet) received(resp clientv3.WatchResponse) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	to, revision := f.state, f.revision
	if f.next != nil {
		to, revision = f.next.state, f.next.revision
	}
	// What happened while the watch was interrupted arrives late, and says nothing about clocks.
	live, now := f.next == nil && time.Since(f.answered) <= 2*f.opts.Probe, f.now()
	bytes := apply(to, resp.Events, now, live)
	revision = max(revision, resp.Header.Revision)
	f.unprobed = f.unprobed && len(resp.Events) > 0 // a response without events is an answer
	if n := len(resp.Events); n > 0 {
		f.version++
		revision = resp.Events[n-1].Kv.ModRevision
	}
	if f.next != nil {
		f.next.revision, to.revision = revision, revision
		if revision < f.revision {
			return f.behind(resp.Header.Revision)
		}
		f.publish(*f.next)
	}
	f.revision = revision
	f.state.revision, f.state.asOf = revision, now
	f.answered, f.failure = time.Now(), nil
	f.wake()
	if f.opts.Changed != nil {
		f.opts.Changed(bytes)
	}
	return nil
}

// behind returns an error if a watch that has not come as far as what is shown will not come as far either: for three probes etcd
// itself is at an earlier revision, as a member that is behind, or one that was restored from a backup. Then the namespace is
// read, which shows what is so. Otherwise the watch has as much to report, however long that takes. f must be locked.
func (f *Fleet) behind(etcd int64) error {
	if etcd < f.revision && time.Since(f.next.at) > 3*f.opts.Probe {
		return fmt.Errorf("etcd is at revision %d, and revision %d was seen", etcd, f.revision)
	}
	return nil
}

// apply applies changes to a state, and returns how many bytes they have. live is whether they have just been made.
func apply(s *State, events []*clientv3.Event, now int64, live bool) (bytes int) {
	for _, ev := range events {
		bytes += len(ev.Kv.Key) + len(ev.Kv.Value)
		if ev.Type == clientv3.EventTypeDelete {
			s.Remove(string(ev.Kv.Key), ev.Kv.ModRevision, now)
			continue
		}
		s.Put(ev.Kv, now)
		if live {
			s.measure(ev.Kv, now)
			s.resumed(ev.Kv, now)
		}
	}
	return bytes
}
