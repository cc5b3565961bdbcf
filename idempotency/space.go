package idempotency

import (
	"cmp"
	"context"
	"math"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
)

const (
	// askEvery is how often etcd is asked for its size, while requests come.
	askEvery = 10 * time.Second
	// askSoon is the same if this process has written much meanwhile.
	askSoon = 100 * time.Millisecond
	// countedIn is how long a member may take until its size has what was written.
	countedIn = 5 * time.Second
	// perKey is about what etcd stores for a key besides its value.
	perKey = 512
)

// space reports whether there is room for new requests. At its quota etcd refuses all writes, outcomes
// included, so new requests are refused before that.
type space struct {
	store *Store

	mu     sync.Mutex
	asked  moment
	asking bool
	room   int64 // bytes until NearQuota, by the latest answer; MaxInt64 before
	wrote  int64 // bytes that this process has written and that the answer may not have
	before int64 // the part of wrote from before parted
	parted moment
	full   bool
}

// enough reports whether a request may begin, by etcd's latest answer and what was written since.
func (s *space) enough(at moment) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.store.opts.NearQuota > 1 {
		return true
	}
	since := s.asked.Age(at)
	much := s.wrote > max(s.room, 0)/4 && since >= askSoon
	if !s.asking && (s.asked.IsZero() || since >= askEvery || much) {
		s.asked, s.asking = at, true
		if !s.store.sess.Background(s.ask) {
			s.asking = false
		}
	}
	full := s.wrote >= s.room
	if full && !s.full {
		s.store.log.Warn("etcd is near its quota: no new request begins")
	}
	s.full = full
	return !full
}

// writes counts what this process is about to write: etcd keeps all versions until a compaction.
func (s *space) writes(keys, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrote += int64(bytes + keys*perKey)
}

// roomWithin returns how many bytes may be written until that part of a quota, at most 1, is in use.
func roomWithin(part float64, quota, inUse int64) int64 {
	if part == 1 { // as a float64 a great quota exceeds an int64
		return quota - inUse
	}
	return int64(part*float64(quota)) - inUse
}

// ask asks the members how much of their file is in use; the free part of the file is used again.
func (s *space) ask() {
	st := s.store
	s.mu.Lock()
	// What was written just now may not be in a member's file yet.
	counted := int64(0)
	if aged(s.parted) >= countedIn {
		counted, s.before, s.parted = s.before, s.wrote-s.before, now()
	}
	s.mu.Unlock()
	room, answered := int64(math.MaxInt64), false
	for _, at := range st.sess.Etcd().Client.Endpoints() {
		ctx, cancel := context.WithTimeout(st.sess.Context(), commit.CallTimeout)
		resp, err := st.sess.Etcd().Status(ctx, at)
		cancel()
		switch {
		case st.sess.Context().Err() != nil:
			return
		case err != nil:
			st.log.Debug("etcd does not report its size", zap.String("endpoint", at), zap.Error(err))
			continue
		}
		quota := cmp.Or(max(resp.DbSizeQuota, 0), st.opts.Quota)
		answered = true
		room = min(room, roomWithin(st.opts.NearQuota, quota, resp.DbSizeInUse))
		for _, alarm := range resp.Errors {
			if strings.Contains(alarm, "NOSPACE") {
				room = min(room, 0)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asking = false
	if answered {
		s.room = room
		s.wrote -= counted
	}
}
