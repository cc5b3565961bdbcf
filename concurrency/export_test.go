package concurrency

import "context"

// ReplaceView replaces the view of a semaphore's queue, as a restored backup does, but
// leaves the session its lease.
func ReplaceView(s *Semaphore) { s.gate.reset() }

// AwaitView waits until the view of a semaphore's queue has reached a revision.
func AwaitView(ctx context.Context, s *Semaphore, revision int64) error {
	m := s.gate.view.Join()
	defer m.Leave()
	_, err := s.gate.next(ctx, m, revision-1)
	return err
}
