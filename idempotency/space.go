package idempotency

import (
	"context"
	"math"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
)

const (
	// lookEvery is how often etcd is asked how full it is, while requests come.
	lookEvery = 10 * time.Second
	// lookSoon is the same when this process has written much meanwhile.
	lookSoon = 100 * time.Millisecond
	// countedIn is how long a member may take to count what was written.
	countedIn = 5 * time.Second
	// perKey is about what etcd keeps of a key besides its value.
	perKey = 512
)

// space knows whether there is room for new requests. When etcd's quota is reached it
// takes no writes at all, outcomes included; so requests are refused before that.
type space struct {
	store *Store

	mu      sync.Mutex
	looked  moment
	looking bool
	known   bool  // etcd has said
	room    int64 // bytes until NearQuota, when it was asked last
	wrote   int64 // bytes by this process that this may not have counted
	before  int64 // those of them from before parted
	parted  moment
	full    bool
}

func (s *space) init(st *Store) {
	s.store = st
	s.enough() // so that the first request knows
}

// enough tells whether a request may be begun, by what etcd has said last and what was
// written since.
func (s *space) enough() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.store.opts.NearQuota > 1 {
		return true
	}
	since := aged(s.looked)
	much := s.known && s.wrote > max(s.room, 0)/4 && since >= lookSoon
	if !s.looking && (s.looked.IsZero() || since >= lookEvery || much) {
		s.looked, s.looking = now(), true
		if !s.store.sess.Background(s.look) {
			s.looking = false
		}
	}
	full := s.known && s.wrote >= s.room
	if full && !s.full {
		s.store.log.Warn("etcd is close to its quota: no new requests are begun")
	}
	s.full = full
	return !full
}

// writes counts what this process is about to write: etcd keeps all of it until it is
// compacted.
func (s *space) writes(keys, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrote += int64(bytes + keys*perKey)
}

// look asks the members. What they use of the file counts, not its size: what is free in it
// is used again.
func (s *space) look() {
	st := s.store
	s.mu.Lock()
	// What was written a moment ago may not be in a member's file yet, nor counted.
	counted := int64(0)
	if aged(s.parted) >= countedIn {
		counted, s.before, s.parted = s.before, s.wrote-s.before, now()
	}
	s.mu.Unlock()
	room, told := int64(math.MaxInt64), false
	for _, at := range st.client.Endpoints() {
		ctx, cancel := context.WithTimeout(st.sess.Context(), commit.CallTimeout)
		resp, err := st.client.Status(ctx, at)
		cancel()
		if err != nil {
			st.log.Debug("etcd does not say how full it is", zap.String("endpoint", at), zap.Error(err))
			continue
		}
		quota := resp.DbSizeQuota
		if quota <= 0 {
			quota = st.opts.Quota
		}
		told = true
		room = min(room, int64(st.opts.NearQuota*float64(quota))-resp.DbSizeInUse)
		for _, alarm := range resp.Errors {
			if strings.Contains(alarm, "NOSPACE") {
				room = min(room, 0)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looking = false
	if told {
		s.known, s.room = true, room
		s.wrote -= counted
	}
}
