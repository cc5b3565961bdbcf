// Package mirror follows a range of etcd and keeps a copy of it: by watch, list and resync. It
// is the one place that watches.
//
// Guaranteed: a view never goes back to an older state, and every state that it shows was the
// state of the range at one revision; between resyncs it passes through every revision in
// order, as far as the watch delivers them. Not guaranteed: that it is up to date. For the queue
// that is safe: once a view has seen a request, an older view can only make its position look
// worse than it is. Missing an earlier request would admit too many. So each waiter says how
// many requests were before it in etcd, and a view that has seen another number is listed
// again before it admits anything.
//
// The watch is created first, from the present revision, and then the range is listed; events up
// to the list's revision are dropped. In the other order, a watch from a past revision would
// wait for etcd's catch-up loop, which runs every 100 ms.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/metadata"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/join"
)

// Source is where the mirrors of one session read from. It is safe for concurrent use.
type Source struct {
	KV      clientv3.KV
	Watcher clientv3.Watcher
	// Refresh is the mean time between lists that find events which the watch has lost.
	// Zero means never.
	Refresh time.Duration
	Log     *zap.Logger
	// Seen is called each time that a mirror has reached a revision.
	Seen func()
	// History returns the present history. A list that is sent afterwards cannot be older than what was seen of it, unless
	// etcd was restored from a backup. Rewound is called with it when that is certain: from then on History returns another.
	History func() *History
	Rewound func(*History)
	// Enter is called before a watch is created, and returns what records how that has ended, or why none is
	// created now: etcd refuses the client's login. It may be nil.
	Enter func(ctx context.Context) (left func(error), err error)

	// stream numbers the watch streams. clientv3 shares a stream among all watches with
	// equal outgoing metadata, and a stream keeps for ever the auth token with which it was
	// opened. So the watches of a Source share a stream of their own, and a failure leads to
	// another. The numbers repeat, because clientv3 never stops trying to open a stream: a
	// new one for each failure would pile up while etcd is unavailable.
	stream atomic.Int64
}

// Handler receives what was read. One goroutine calls its methods, one after the other, with
// rising revisions.
type Handler interface {
	// Reset replaces everything by the range as of a revision. A revision below one that
	// was seen before means that etcd was restored from a backup.
	Reset(kvs []*mvccpb.KeyValue, revision int64)
	// Apply applies the events of one revision.
	Apply(events []*clientv3.Event, revision int64)
}

// Sighted is a Handler that has to know when its range cannot be read.
type Sighted interface {
	Handler
	// Unread is called each time that a watch has ended or a list has failed. Reset ends that.
	Unread(err error)
}

// Follow keeps h up to date with all keys below prefix until ctx ends. h has seen the revision
// from already, 0 for none, and gets nothing older. Every failure (a lost connection, a
// compacted revision, a member without a leader, an expired token) only delays it, until the
// next list.
func (s *Source) Follow(ctx context.Context, prefix string, from int64, h Handler) {
	s.follow(ctx, &follower{source: s, prefix: prefix, handler: h, revision: from, read: s.all(prefix)})
}

// follow is Follow for a follower.
func (s *Source) follow(ctx context.Context, f *follower) {
	f.history = s.History()
	f.denied = s.deniedPause()
	sighted, _ := f.handler.(Sighted)
	if sighted != nil { // it has to notice soon that it may read again
		f.denied.Most = min(f.denied.Most, max(time.Second, s.Refresh/3))
	}
	f.unread = func(err error) {
		if sighted != nil && ctx.Err() == nil {
			sighted.Unread(err)
		}
	}
	s.repeat(ctx, f.prefix, f.denied, func(pause *commit.Backoff) error {
		before := f.revision
		err := f.follow(ctx)
		if f.revision > before {
			pause.Reset()
		}
		f.unread(err)
		return err
	})
}

// deniedPause is the pause between tries of what etcd denies. Each one opens a stream, for which etcd's client
// logs in.
func (s *Source) deniedPause() commit.Backoff {
	return commit.Backoff{Least: 100 * time.Millisecond, Most: commit.DeniedPause}
}

// repeat calls watch, which returns why its watch has ended, again and again until ctx ends.
func (s *Source) repeat(ctx context.Context, prefix string, denied commit.Backoff, watch func(*commit.Backoff) error) {
	var pause commit.Backoff
	for ctx.Err() == nil {
		err := watch(&pause)
		if ctx.Err() != nil {
			return
		}
		s.Log.Debug("watch ended; another is created", zap.String("prefix", prefix), zap.Error(err))
		if errors.Is(err, rpctypes.ErrCompacted) {
			continue
		}
		s.NextStream()
		next := &pause
		if commit.Denied(err) {
			next = &denied
		} else {
			denied.Reset()
		}
		if next.Wait(ctx, nil) != nil {
			return
		}
	}
}

// NextStream has the next watch use another stream, with an auth token of its own: that of the present one may have expired.
func (s *Source) NextStream() { s.stream.Add(1) }

// all reads a range.
func (s *Source) all(prefix string) func(context.Context) ([]*mvccpb.KeyValue, int64, error) {
	return func(ctx context.Context) ([]*mvccpb.KeyValue, int64, error) {
		resp, err := s.KV.Get(ctx, prefix, clientv3.WithPrefix())
		if err != nil {
			return nil, 0, err
		}
		return resp.Kvs, resp.Header.Revision, nil
	}
}

type follower struct {
	source   *Source
	prefix   string
	handler  Handler
	filter   []clientv3.OpOption // of the watch
	read     func(context.Context) (kvs []*mvccpb.KeyValue, revision int64, err error)
	revision int64    // what h has seen
	history  *History // of that revision

	denied commit.Backoff // between lists that etcd denies
	unread func(err error)

	stale      int // lists in a row that were older
	staleSince time.Time
}

// follow watches and lists once. It returns when the watch has ended.
func (f *follower) follow(ctx context.Context) error {
	if present := f.source.History(); present != f.history { // another follower, or a call, has found that it was taken back
		f.history, f.revision, f.stale = present, 0, 0
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	events, stop, err := f.source.watch(ctx, f.prefix, append(f.filter, clientv3.WithPrefix())...)
	if err != nil {
		return err
	}
	defer stop()
	if err := f.list(ctx); err != nil {
		return err
	}
	var again <-chan struct{}
	if h, ok := f.handler.(interface{ Again() <-chan struct{} }); ok {
		again = h.Again()
	}
	refresh := time.NewTimer(f.untilRefresh())
	defer refresh.Stop()
	relist := func() error {
		err := f.list(ctx)
		switch {
		case err == nil:
			f.denied.Reset()
			refresh.Reset(f.untilRefresh())
		case commit.Denied(err): // the open watch is kept: a new one would be denied, too
			f.unread(err)
			refresh.Reset(f.denied.Next())
			return nil
		}
		return err
	}
	for err == nil {
		select {
		case resp, ok := <-events:
			if err = ended(resp, ok); err == nil {
				f.apply(resp.Events)
			}
		case <-again:
			err = relist()
		case <-refresh.C:
			err = relist()
		case <-f.history.Over():
			err = errTakenBack
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return err
}

var errTakenBack = errors.New("etcd's history was taken back: the watch waits for revisions of the former one")

// ended returns why a watch has ended, or nil for a response with events.
func ended(resp clientv3.WatchResponse, ok bool) error {
	if !ok {
		return errors.New("the watch was closed")
	}
	return asSaid(resp.Err())
}

// asSaid returns the error of a watch as other calls return it: etcd sends the reason for which it does not
// create a watch as the text of a gRPC error.
func asSaid(err error) error {
	if err == nil {
		return nil
	}
	if _, said, ok := strings.Cut(err.Error(), " desc = "); ok {
		if known, ok := rpctypes.Error(errors.New(said)).(rpctypes.EtcdError); ok { //nolint:errorlint // it is not wrapped
			return known
		}
	}
	return err
}

// streams is the number of watch streams that are used in rotation.
const streams = 8

// leaving is how long the creation of a watch that is no longer wanted may still take.
const leaving = 200 * time.Millisecond

// watch creates the watch. clientv3's Watch returns when the server has created it, and has no
// deadline of its own. If its ctx ends before that, clientv3 keeps the unused stream open until
// the client is closed; so a watch that is no longer wanted gets a moment to be created.
func (s *Source) watch(ctx context.Context, key string, opts ...clientv3.OpOption) (clientv3.WatchChan, context.CancelFunc, error) {
	if s.Enter == nil {
		return s.create(ctx, key, opts)
	}
	left, err := s.Enter(ctx)
	if err != nil {
		return nil, nil, err
	}
	events, stop, err := s.create(ctx, key, opts)
	left(err)
	return events, stop, err
}

func (s *Source) create(ctx context.Context, key string, opts []clientv3.OpOption) (clientv3.WatchChan, context.CancelFunc, error) {
	wctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := func() { cancel(nil) }
	late := time.AfterFunc(commit.CallTimeout, func() { cancel(errors.New("the watch was not created in time")) })
	defer late.Stop()
	defer context.AfterFunc(ctx, func() { late.Reset(leaving) })()
	events := s.Watcher.Watch(s.mark(wctx), key, append(slices.Clip(opts), clientv3.WithCreatedNotify())...)
	select {
	case first, ok := <-events:
		if !ok {
			stop()
			return nil, nil, join.Errors(errors.New("the watch was refused"), context.Cause(wctx))
		}
		if err := asSaid(first.Err()); err != nil {
			stop()
			return nil, nil, err
		}
		return events, stop, nil
	case <-wctx.Done():
		return nil, nil, context.Cause(wctx)
	}
}

// mark returns a ctx whose calls of the watcher use the present stream.
func (s *Source) mark(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(clientv3.WithRequireLeader(ctx),
		"etcdkit-stream", strconv.FormatInt(s.stream.Load()%streams, 10))
}

func (f *follower) untilRefresh() time.Duration {
	d := f.source.Refresh
	if d <= 0 {
		return 1 << 62
	}
	return d/2 + rand.N(d)
}

func (f *follower) list(ctx context.Context) error {
	ctx, cancel := commit.Call(ctx)
	defer cancel()
	seen := max(f.revision, f.history.Seen())
	kvs, revision, err := f.read(ctx)
	if err != nil {
		return err
	}
	if revision < seen && !f.rewound() {
		return fmt.Errorf("list of revision %d is older than %d, which was seen", revision, seen)
	}
	f.stale = 0
	f.came(revision)
	f.handler.Reset(kvs, f.revision)
	return nil
}

// A read that is older than what was seen would take the view back. etcd's linearizable reads
// have had such a bug. But if all reads stay older, etcd was restored from a backup, and its
// history does not contain what was seen.
const (
	staleReads = 5
	staleFor   = 3 * time.Second
)

// rewound counts a list that is older than what was seen, and reports whether etcd's history
// was taken back.
func (f *follower) rewound() bool {
	if f.stale == 0 {
		f.staleSince = time.Now()
	}
	f.stale++
	if f.stale < staleReads || time.Since(f.staleSince) < staleFor {
		return false
	}
	f.source.Rewound(f.history)
	f.history = f.source.History()
	return true
}

func (f *follower) came(revision int64) {
	f.revision = revision
	f.history.See(revision)
	f.source.Seen()
}

// apply passes on the new events, revision by revision. A watch response always contains whole
// revisions.
func (f *follower) apply(events []*clientv3.Event) {
	for len(events) > 0 {
		revision, n := events[0].Kv.ModRevision, 1
		for n < len(events) && events[n].Kv.ModRevision == revision {
			n++
		}
		if revision > f.revision {
			f.came(revision)
			f.handler.Apply(events[:n], revision)
		}
		events = events[n:]
	}
}
