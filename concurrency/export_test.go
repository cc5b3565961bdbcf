package concurrency

import (
	"context"
	"strings"

	"github.com/etcdkit/etcdkit/internal/crowd"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/queue"
)

// ReplaceView replaces the view of a semaphore's queue, as a restored backup does, but
// leaves the session its lease.
func ReplaceView(s *Semaphore) { s.in().queue.Reset() }

// AwaitView waits until the view of a semaphore's queue has reached a revision.
func AwaitView(ctx context.Context, s *Semaphore, revision int64) error {
	w := s.in().queue.Watch()
	defer w.Leave()
	_, err := w.Next(ctx, queue.State{View: mirror.View{Revision: revision - 1}})
	return err
}

// KeyOf returns the key of a permit, without asking for its Guard.
func KeyOf(p *Permit) string { return p.ticket.Key }

// Waits reports whether a request of a semaphore's session waits: its answer has come.
func Waits(s *Semaphore) bool {
	_, ok := s.in().queue.Crowd.First()
	return ok
}

// Sleeps reports whether the waiting requests of a semaphore's session are far, and watch others.
func Sleeps(s *Semaphore) bool {
	return s.in().queue.Crowd.Mode() == crowd.Asleep
}

// OwnKeys returns the prefix of the keys of the first waiting request of a semaphore's session and of its
// others, and LimitKey that of the limit.
func OwnKeys(s *Semaphore) string {
	first, _ := s.in().queue.Crowd.First()
	return first.Key[:strings.LastIndex(first.Key, "-")+1]
}

func LimitKey(s *Semaphore) string { return s.in().queue.Keys.Limit }

// QueueOf returns the keys of a semaphore.
func QueueOf(s *Semaphore) keyspace.Queue { return s.in().queue.Keys }

// InFront returns how many requests are before the first waiting one of a semaphore's session in the front
// of the queue that it follows, or -1.
func InFront(s *Semaphore) int {
	first, waits := s.in().queue.Crowd.First()
	if ahead, ok := s.in().queue.Crowd.Front.Ahead(first.Key, first.Token); ok && waits {
		return ahead
	}
	return -1
}

// Follows reports whether the session of a semaphore follows the whole queue.
func Follows(s *Semaphore) bool {
	_, ok := s.in().queue.View.ForeignKeys()
	return ok
}

// LimitOf returns the limit by which the permits of a semaphore pass.
func LimitOf(s *Semaphore) int64 { return s.in().keeper.Limit() }

// LocalCalls returns how many calls wait in a semaphore's local queue.
func LocalCalls(s *Semaphore) int { return s.in().keeper.Waiting() }

// SeenLimit returns the limit that a semaphore's session has seen last.
func SeenLimit(s *Semaphore) int64 { return limit.SeenN(s.in().queue.Limit) }
