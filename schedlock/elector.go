package schedlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/etcdkit/etcdkit/concurrency"
)

// ErrNotLeading: another process leads, or none does for the moment.
var ErrNotLeading = errors.New("not leading")

// GocronElector is an Elector of gocron (v2): jobs run where it leads. It is a candidate of
// a concurrency.Election that campaigns until Close, term after term. It is safe for
// concurrent use.
//
// It says that it leads no longer before another does, also in a process that was cut
// off or paused. But gocron asks before a task only: one that runs when the term ends goes
// on, beside those of the next leader; and a tick that comes between two leaders, or by
// the clocks of both, is run by none or twice. Where that matters, take NewGocronLocker.
type GocronElector struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu   sync.Mutex
	term *concurrency.Permit
	err  error // why it has ended
}

// NewGocronElector returns an elector and begins to campaign. The options are those of
// concurrency.Election.Lead. It returns ErrInvalid if the election is nil.
//
//	elector, err := schedlock.NewGocronElector(election)
//	s, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
func NewGocronElector(el *concurrency.Election, opts ...concurrency.AcquireOption) (*GocronElector, error) {
	if el == nil {
		return nil, fmt.Errorf("new gocron elector: %w", invalid("the election is nil"))
	}
	opts = slices.Clone(opts) // read after the return
	ctx, cancel := context.WithCancel(context.Background())
	e := &GocronElector{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(e.done)
		err := el.Lead(ctx, func(ctx context.Context, term *concurrency.Permit) error {
			e.set(term, nil)
			defer e.set(nil, nil)
			<-ctx.Done()
			return nil
		}, opts...)
		e.set(nil, err)
	}()
	return e, nil
}

func (e *GocronElector) set(term *concurrency.Permit, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term, e.err = term, err
}

// IsLeader is gocron's, which calls it before each run of a job. It asks nobody, but reads
// the clocks, so it is right even after a pause of the process. It returns ErrNotLeading,
// joined with why it does not campaign any more if that is so: ErrClosed, or an error of
// concurrency.Election.Lead.
func (e *GocronElector) IsLeader(context.Context) error {
	e.mu.Lock()
	term, err := e.term, e.err
	e.mu.Unlock()
	if term != nil && term.Err() == nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotLeading, err)
	}
	return ErrNotLeading
}

// Close resigns and ends the candidacy; closing the session does so, too. Shut gocron down
// first, so that its tasks have ended. It returns an error, ctx's own, only if ctx ends
// before that is done; then it goes on.
func (e *GocronElector) Close(ctx context.Context) error {
	e.cancel()
	select {
	case <-e.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
