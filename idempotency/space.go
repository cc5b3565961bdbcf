package idempotency

import (
	"context"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// lookEvery is how often etcd is asked how full it is, while requests come.
const lookEvery = 10 * time.Second

// space knows whether there is room for new requests. When etcd's quota is reached it
// takes no writes at all, outcomes included; so requests are refused before that.
type space struct {
	store *Store

	mu     sync.Mutex
	looked time.Time
	full   bool
}

func (s *space) init(st *Store) { s.store = st }

// enough tells whether a request may be begun, by what etcd has said last.
func (s *space) enough() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.store.opts.FullAt > 1 {
		return true
	}
	if s.looked.IsZero() || aged(s.looked) >= lookEvery {
		s.looked = time.Now()
		s.store.sess.Background(s.look)
	}
	return !s.full
}

// look asks the members. What they use of the file counts, not its size: what is free in it
// is used again.
func (s *space) look() {
	st := s.store
	full, told := false, false
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
		for _, alarm := range resp.Errors {
			full = full || strings.Contains(alarm, "NOSPACE")
		}
		full = full || float64(resp.DbSizeInUse) >= st.opts.FullAt*float64(quota)
	}
	if !told {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if full && !s.full {
		st.log.Warn("etcd is close to its quota: no new requests are begun")
	}
	s.full = full
}
