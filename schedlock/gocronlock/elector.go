package gocronlock

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/etcdkit/etcdkit/concurrency"
)

// Elector is an Elector of gocron (v2): jobs run in the process that leads. It is a candidate
// of a concurrency.Election that campaigns until Close, term after term. It is safe for concurrent
// use.
//
// It stops reporting leadership before another process leads, even in a process that was
// partitioned or paused. But gocron asks only before it starts a task. So a task that runs when the
// term ends continues beside the tasks of the next leader, and a tick that comes between two
// leaders is run by neither or, if their clocks differ, by both. If that matters, use
// New. On processes that do not lead, gocron's NextRun stays in the past: do not alert
// on it.
type Elector struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu   sync.Mutex
	term *concurrency.Permit
	err  error // why it has ended
}

// NewElector returns an elector and begins to campaign. The options are those of
// concurrency.Election.Lead. It returns ErrInvalid if the election is nil.
//
//	elector, err := gocronlock.NewElector(election)
//	if err != nil {
//		return err
//	}
//	s, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
func NewElector(el *concurrency.Election, opts ...concurrency.AcquireOption) (*Elector, error) {
	if el == nil {
		return nil, fmt.Errorf("new elector for gocron: %w", invalid("the election is nil"))
	}
	opts = slices.Clone(opts) // used after the return
	ctx, cancel := context.WithCancel(context.Background())
	e := &Elector{cancel: cancel, done: make(chan struct{})}
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

func (e *Elector) set(term *concurrency.Permit, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term, e.err = term, err
}

// IsLeader is called by gocron before each run of a job. It asks no other process, and reads the
// clocks, so that its answer is right even after a pause of the process. It returns nil or
// ErrNotLeading. If the elector no longer campaigns, ErrNotLeading is joined with the reason:
// ErrClosed, or an error of concurrency.Election.Lead.
func (e *Elector) IsLeader(context.Context) error {
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

// Close resigns and ends the candidacy, as the end of the session does. Stop gocron first, so that
// its tasks have ended. If ctx ends before that, Close returns an error, ctx's own, and resigning
// continues in the background.
func (e *Elector) Close(ctx context.Context) error {
	e.cancel()
	select {
	case <-e.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
