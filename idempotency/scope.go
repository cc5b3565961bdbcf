package idempotency

import (
	"context"
	"maps"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// A count is used for as long as this for each key that was counted, and within these bounds.
// etcd looks at each key, for about half a microsecond: so each process has it count for half a
// percent of the time, whatever a tenant sends.
const (
	usedPerKey = 100 * time.Microsecond
	usedLeast  = 10 * time.Millisecond
	usedMost   = 10 * time.Second
)

// scopes knows how many records the scopes have that this process begins requests of.
type scopes struct {
	mu    sync.Mutex
	of    map[string]*tally
	sweep int // look for old ones when there are that many
}

// tally is the last count of a scope.
type tally struct {
	turn chan struct{} // held by the call that counts
	n    int64         // keys, and what this process has begun since
	at   moment
}

func (t *tally) fresh() bool {
	return aged(t.at) < min(max(time.Duration(t.n)*usedPerKey, usedLeast), usedMost)
}

// tally returns that of a scope. Those that are of no use any more are forgotten.
func (s *scopes) tally(scope string) *tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.of[scope]
	if t == nil {
		if len(s.of) >= s.sweep {
			maps.DeleteFunc(s.of, func(_ string, t *tally) bool { return !t.fresh() && len(t.turn) == 0 })
			s.sweep = 2*len(s.of) + 64
		}
		t = &tally{turn: make(chan struct{}, 1)}
		if s.of == nil {
			s.of = map[string]*tally{}
		}
		s.of[scope] = t
	}
	return t
}

// take takes a place for one more record, by a count that is still of use, or that was asked for
// after the call came: where etcd answers slowly, those who have waited for it share it.
func (s *scopes) take(t *tally, most int, came moment) (known, full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !t.fresh() && t.at.Before(came.Time) {
		return false, false
	}
	if t.n >= int64(most) {
		return true, true
	}
	t.n++
	return true, false
}

// countScope reports whether the scope of a request that has no record has as many as it may
// have. It returns an error of etcd's or ctx's.
//
// A counter in etcd would be exact, and would have all claims of a scope wait for each other.
func (c *call) countScope(ctx context.Context) (bool, error) {
	s, most := c.store, c.store.opts.MaxPerScope
	if most == 0 {
		return false, nil
	}
	t, came := s.scopes.tally(c.key.Scope), now()
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if known, full := s.scopes.take(t, most, came); known {
		return full, nil
	}
	var asked moment
	n, err := commit.Read(ctx, func(call context.Context) (int64, error) {
		asked = now()
		return s.keysBelow(call, s.keys.Scope(c.key.Scope))
	})
	if err != nil {
		return false, err
	}
	s.scopes.mu.Lock()
	t.n, t.at = n, asked
	s.scopes.mu.Unlock()
	_, full := s.scopes.take(t, most, came)
	return full, nil
}

// keysBelow counts the keys under a prefix, by a majority.
func (s *Store) keysBelow(ctx context.Context, prefix string) (int64, error) {
	call, cancel := commit.Call(ctx)
	defer cancel()
	resp, err := s.client.Get(call, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return resp.Count, nil
}

// scopeFull counts and returns the refusal of a request whose scope is full. Records that
// came evenly go evenly: one in each such part of their retention.
func (c *call) scopeFull() error {
	c.store.count.scopeFull.Add(1)
	most := c.store.opts.MaxPerScope
	after := min(max(c.set.retain/time.Duration(most), time.Second), time.Hour)
	return &ScopeFullError{Key: c.key, Max: most, RetryAfter: after}
}
