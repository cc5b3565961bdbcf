package schedlock

import (
	"context"
	"fmt"
	"sync"
)

// errRemoved refuses the calls of a Job after Remove.
var errRemoved = invalid("the job was removed from this process (Remove): to use it again, make a new one")

// starts are the calls of a Job that may start a run, until Remove ends them. nil is that of calls without a Job or a crontab. It is safe
// for concurrent use.
type starts struct {
	removed context.Context // ends with Remove
	remove  context.CancelFunc

	mu    sync.Mutex
	calls sync.WaitGroup
}

func newStarts() *starts {
	ctx, cancel := context.WithCancel(context.Background())
	return &starts{removed: ctx, remove: cancel}
}

// begin counts a call that may start a run, until begun is called. ok is false after Remove.
func (s *starts) begin() (begun func(), ok bool) {
	if s == nil {
		return func() {}, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.removed.Err() != nil {
		return nil, false
	}
	s.calls.Add(1)
	return sync.OnceFunc(s.calls.Done), true
}

// another counts one more for a call that is counted.
func (s *starts) another() (done func()) {
	if s == nil {
		return func() {}
	}
	s.calls.Add(1)
	return s.calls.Done
}

// over reports whether Remove was called.
func (s *starts) over() bool { return s != nil && s.removed.Err() != nil }

// until derives a ctx that also ends with Remove.
func (s *starts) until(ctx context.Context) (context.Context, context.CancelFunc) {
	if s == nil {
		return ctx, func() {}
	}
	return endedWith(ctx, s.removed, errRemoved)
}

// register calls f, unless Remove was called. If f is called, Remove waits until it has returned.
func (s *starts) register(f func()) {
	if s == nil {
		f()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.removed.Err() == nil {
		f()
	}
}

// end ends the calls that wait to start a run.
func (s *starts) end() {
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.remove()
	}
}

// wait waits, after end, for the claims that are under way: on their way to etcd, or in a schedule or a hook of the caller's.
func (s *starts) wait(ctx context.Context) error {
	if s == nil {
		return nil
	}
	ended := make(chan struct{})
	go func() { s.calls.Wait(); close(ended) }()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("a claim of this process has not ended: %w", ctx.Err())
	}
}
