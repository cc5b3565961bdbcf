package lease

import (
	"fmt"
	"sync"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// refusal records whether the latest answer to a renewal was a refusal.
type refusal struct {
	report func(err error) // Options.Denied

	mu       sync.Mutex
	err      error // the latest refusal, nil if what came last was another answer, or none
	reported bool  // a refusal, and no acknowledgement since
}

// answer records how a renewal has ended, nil for one that was acknowledged.
func (r *refusal) answer(err error) {
	denied := commit.Denied(err)
	r.mu.Lock()
	r.err = nil
	if denied {
		r.err = err
	}
	report := denied || err == nil && r.reported
	r.reported = denied || r.reported && err != nil
	r.mu.Unlock()
	if report && r.report != nil {
		r.report(err)
	}
}

// overdue returns why no renewal was acknowledged in time.
func (r *refusal) overdue() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		return ErrDeadline
	}
	return fmt.Errorf("%w: %w: %w", ErrDeadline, ErrDenied, r.err)
}
