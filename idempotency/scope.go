package idempotency

import (
	"context"
	"maps"
	"math"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// A count is used for usedPerKey for each counted key, and for usedPerTook times as long as it took,
// within these bounds. etcd needs about half a microsecond per key, so each process makes it count for
// half a percent of the time, whatever a tenant sends. It also visits, and does not count, the names
// that have expired since its last compaction: where these are many, a process counts a scope for 5 % of
// the time, and one that is full for up to half of it.
const (
	usedPerKey  = 100 * time.Microsecond
	usedPerTook = 20
	usedLeast   = 10 * time.Millisecond
	usedMost    = 10 * time.Second
)

// usedFor is how long a process uses a count of n keys that took so long. One that shows a full scope
// is used for no longer than it took, if that is longer than by its keys: it refuses requests that may
// have room by now.
func usedFor(n int64, took time.Duration, full bool) time.Duration {
	perKey := time.Duration(min(n, int64(usedMost/usedPerKey))) * usedPerKey
	times := time.Duration(usedPerTook)
	if full {
		times = 1
	}
	return min(max(perKey, times*took, usedLeast), usedMost) //nolint:durationcheck // times is a count
}

// scopes has the number of records of each scope in which this process begins requests. It is safe for
// concurrent use.
type scopes struct {
	kv   clientv3.KV
	keys keyspace.Store
	most int // Options.MaxPerScope
	log  *zap.Logger

	mu    sync.Mutex
	of    map[string]*tally
	sweep int // the size at which old counts are removed

	first   *string // the scope of the first request, where there is no bound
	several bool    // there was one of another scope
}

// second reports once that requests have had two scopes.
func (s *scopes) second(scope string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.several:
		return false
	case s.first == nil:
		s.first = &scope
	}
	s.several = *s.first != scope
	return s.several
}

// seat is the place that a call has taken in a count; the zero value is none.
type seat struct {
	of    *tally
	count int // its number
}

// tally is the last count of a scope.
type tally struct {
	turn   chan struct{} // held by the call that counts
	counts int           // that there were
	n      int64         // keys, and the requests that this process has begun since, or may begin
	at     moment
	took   time.Duration
}

func (t *tally) fresh(most int) bool {
	return aged(t.at) < usedFor(t.n, t.took, t.n >= int64(most))
}

// tally returns the tally of a scope, and removes old ones.
func (s *scopes) tally(scope string) *tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.of[scope]
	if t == nil {
		if len(s.of) >= s.sweep {
			maps.DeleteFunc(s.of, func(_ string, t *tally) bool { return !t.fresh(math.MaxInt) && len(t.turn) == 0 })
			s.sweep = 2*len(s.of) + 64
		}
		t = &tally{turn: make(chan struct{}, 1)}
		s.of[scope] = t
	}
	return t
}

// take takes a place for one more record, if the count is fresh.
func (s *scopes) take(t *tally, by *seat) (known, full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !t.fresh(s.most) {
		return false, false
	}
	return true, t.take(s.most, by)
}

// leave returns the place of a call that has begun no attempt. A later count knows nothing of it.
func (s *scopes) leave(by seat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if by.of != nil && by.of.counts == by.count {
		by.of.n--
	}
}

// counted sets the count of a scope, and takes a place.
func (s *scopes) counted(t *tally, n int64, asked moment, by *seat) (full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.n, t.at, t.took = n, asked, aged(asked)
	t.counts++
	return t.take(s.most, by)
}

// take takes a place, if there is one and the call has none yet. scopes.mu is held.
func (t *tally) take(most int, by *seat) (full bool) {
	switch mine := (seat{t, t.counts}); {
	case *by == mine:
		return false
	case t.n >= int64(most):
		return true
	default:
		t.n++
		*by = mine
		return false
	}
}

// full reports whether a scope has as many records as it may have, and takes a place if it has not. It returns an
// error of etcd's or ctx's. A counter in etcd would be exact, but all claims of a scope would wait for
// each other.
func (s *scopes) full(ctx context.Context, scope string, by *seat) (bool, error) {
	if s.most <= 0 {
		if s.most == 0 && s.second(scope) {
			s.log.Warn("requests of several scopes without Options.MaxPerScope: one scope can use up etcd's space, and then no scope begins a request")
		}
		return false, nil
	}
	t := s.tally(scope)
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if known, full := s.take(t, by); known {
		return full, nil
	}
	var asked moment
	n, err := commit.Read(ctx, func(call context.Context) (int64, error) {
		asked = now()
		return keysBelow(call, s.kv, s.keys.Scope(scope))
	})
	if err != nil {
		return false, err
	}
	return s.counted(t, n, asked, by), nil
}

// keysBelow counts the keys with a prefix, in a linearizable read.
func keysBelow(ctx context.Context, kv clientv3.KV, prefix string) (int64, error) {
	call, cancel := commit.Call(ctx)
	defer cancel()
	resp, err := kv.Get(call, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return resp.Count, nil
}
