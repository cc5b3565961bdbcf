// Package fleet has the state of one namespace as etcd shows it: one list, page by page at one
// revision, and one watch with progress probes. The exporter uses it, and it has what pages need, so
// that all of them can show the same holders and the same ages. It writes nothing, and needs read
// permission alone.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

// Options configure a Fleet. All fields but Details, Only and Changed are set.
type Options struct {
	Probe   time.Duration // as exporter.Options has it
	Refresh time.Duration // as exporter.Options has it
	Logger  *zap.Logger
	Now     func() time.Time
	// Details keeps the values of requests, sessions, jobs and notes of operators as well, for
	// pages that show them. Defaults to false: times, states and limits alone.
	Details bool
	// Only are the prefixes that are listed, none of which is that of a store. Of the rest the state has what changes while
	// the namespace is followed. Defaults to all of the namespace.
	Only []string
	// Changed is called after changes that have so many bytes. It must not call methods of the Fleet. Defaults to nil.
	Changed func(bytes int)
}

// ErrActive: Run was called while another call of it is active.
var ErrActive = errors.New("Run is active already")

// Fleet follows a namespace. It is safe for concurrent use.
type Fleet struct {
	kv     clientv3.KV
	space  keyspace.Space
	opts   Options
	source *mirror.Source
	page   int64 // keys that are read at once

	running atomic.Bool

	mu       sync.Mutex
	state    *State
	next     *reading  // what was read beside a watch that had seen more, or nil
	revision int64     // up to which state is complete
	answered time.Time // etcd's latest answer, by the monotonic clock of this process; zero before the first
	lists    int64
	version  int64
	failure  error         // of the latest attempt to follow, or nil
	silent   bool          // the present failure has been logged
	unprobed bool          // it has been logged that the watch answers no probe
	awaited  bool          // a revision was awaited since the latest View
	moved    chan struct{} // closed at the next answer or failure; nil if no call waits for it
}

// New returns a Fleet that knows nothing yet: see Run. It sends nothing to etcd.
func New(kv clientv3.KV, watcher clientv3.Watcher, space keyspace.Space, o Options) *Fleet {
	return &Fleet{kv: kv, space: space, opts: o, page: pageSize, source: &mirror.Source{KV: kv, Watcher: watcher, Log: o.Logger}}
}

// SetPage sets how many keys are read at once, for tests. It is called before Run.
func (f *Fleet) SetPage(n int64) { f.page = n }

// Read returns the state of a namespace from one list, without a watch: of what has one of the prefixes, or of
// all. It returns etcd's error or ctx's.
func Read(ctx context.Context, kv clientv3.KV, space keyspace.Space, now time.Time, prefixes ...string) (*State, error) {
	f := New(kv, nil, space, Options{Details: true, Logger: zap.NewNop(), Now: func() time.Time { return now }})
	s, _, err := f.list(ctx, prefixes...)
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", space.Root(), err)
	}
	s.asOf = now.UnixMilli()
	s.Settle(s.asOf)
	return s, nil
}

// Queues returns the prefixes of all queues but those of rates, for Read.
func Queues(space keyspace.Space) []string {
	return []string{space.Queues(keyspace.Semaphore), space.Queues(keyspace.Mutex), space.Queues(keyspace.Election), space.Limiters()}
}

// Meta says how good a state is.
type Meta struct {
	Up       bool      // etcd has confirmed the state lately
	Answered time.Time // when etcd has answered last, by the clock of the options; zero: it has not
	Revision int64     // up to which the state is complete
	Lists    int64     // how often the namespace was listed
	Version  int64     // changes with each change of the state
	Failure  error     // why the state is not confirmed, as far as known
}

// View calls fn with the state, or nil if nothing was read yet. fn must not keep the state, nor call
// methods of f. Which requests of a queue of more than 1,000 hold may be as of a second ago, unless Await has returned for a
// revision since then.
func (f *Fleet) View(fn func(s *State, m Meta)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.meta()
	if f.state != nil && m.Up {
		most := large
		if f.awaited {
			most, f.awaited = math.MaxInt, false
		}
		f.state.settleUpTo(most, f.now())
	}
	fn(f.state, m)
}

// Await waits until the state is complete up to a revision. It returns ctx's error, or, while nothing was
// read yet, the error because of which that is so.
func (f *Fleet) Await(ctx context.Context, revision int64) error {
	for {
		f.mu.Lock()
		switch {
		case f.state != nil && f.revision >= revision:
			f.awaited = f.awaited || revision > 1 // otherwise it is the first list that was awaited
			f.mu.Unlock()
			return nil
		case f.state == nil && f.failure != nil:
			defer f.mu.Unlock()
			return f.failure
		case f.moved == nil:
			f.moved = make(chan struct{})
		}
		moved := f.moved
		f.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// wake wakes the calls of Await. f must be locked.
func (f *Fleet) wake() {
	if f.moved != nil {
		close(f.moved)
		f.moved = nil
	}
}

// Meta returns how good the state is.
func (f *Fleet) Meta() Meta {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.meta()
}

func (f *Fleet) meta() Meta {
	m := Meta{Up: f.up(), Revision: f.revision, Lists: f.lists, Version: f.version, Failure: f.failure}
	if !f.answered.IsZero() {
		m.Answered = f.opts.Now().Add(-time.Since(f.answered))
	}
	return m
}

// now returns the time in milliseconds, which is how etcdkit stores times.
func (f *Fleet) now() int64 { return f.opts.Now().UnixMilli() }
