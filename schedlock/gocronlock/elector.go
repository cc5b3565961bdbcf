package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/commit"
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
	err  error // why it does not campaign now
}

// NewElector returns an elector and begins to campaign. The options are those of
// concurrency.Election.Lead. It returns ErrInvalid if the election is nil, or an option is one that Lead refuses.
//
// Whatever ends Lead, such as ErrFull by Wait, or etcd that refuses a candidate since it has no space, the elector
// campaigns again, after a pause of 10 s at most, or longer while etcd refuses the login, until Close or until the session's Close begins.
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
	ended, end := context.WithCancel(ctx)
	end()
	if err := el.Lead(ended, e.lead, opts...); errors.Is(err, concurrency.ErrInvalid) { // it reads the options first
		cancel()
		return nil, fmt.Errorf("new elector for gocron: %w", err)
	}
	go func() {
		defer close(e.done)
		e.campaign(ctx, func() error { return el.Lead(ctx, e.lead, opts...) })
	}()
	return e, nil
}

// campaign calls lead again and again until ctx ends or the session closes.
func (e *Elector) campaign(ctx context.Context, lead func() error) {
	pause := commit.Backoff{Most: 6 * time.Second} // 9 s at most
	for {
		begun := time.Now()
		e.set(nil, nil)
		err := lead()
		e.set(nil, err)
		if errors.Is(err, concurrency.ErrClosed) || ctx.Err() != nil {
			return
		}
		if time.Since(begun) > time.Minute {
			pause.Reset()
		}
		if pause.Wait(ctx, err) != nil {
			return
		}
	}
}

// lead leads until the term ends.
func (e *Elector) lead(ctx context.Context, term *concurrency.Permit) error {
	e.set(term, nil)
	defer e.set(nil, nil)
	<-ctx.Done()
	return nil
}

func (e *Elector) set(term *concurrency.Permit, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term, e.err = term, err
}

// IsLeader is called by gocron before each run of a job. It asks no other process, and reads the
// clocks, so that its answer is right even after a pause of the process. It returns nil or
// ErrNotLeading. While the elector does not campaign, ErrNotLeading is joined with the reason: an error of
// concurrency.Election.Lead, which is ErrClosed or that of a closed context if it has ended.
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
