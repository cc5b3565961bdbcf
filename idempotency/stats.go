package idempotency

import "sync/atomic"

// counters count what a Store did in this process.
type counters struct {
	begun, takenOver, cached, read, joined, inProgress, mismatched, unknown, scopeFull atomic.Int64
	done, failed, released, abandoned, fenced, omitted, pending                        atomic.Int64
}

// Stats counts what a Store did in this process since it was made.
type Stats struct {
	Begun      int64 // attempts, TakenOver included
	TakenOver  int64 // attempts after a lost one
	Cached     int64 // replays from this process's cache
	Read       int64 // replays of what was read from etcd
	Joined     int64 // duplicates that got the outcome of a call in this process
	InProgress int64 // calls that ended with ErrInProgress
	Mismatched int64 // with ErrMismatch
	Unknown    int64 // with ErrUnknown
	ScopeFull  int64 // with ErrScopeFull

	Done      int64 // attempts whose result was recorded
	Failed    int64 // whose failure was
	Released  int64
	Abandoned int64
	Fenced    int64 // whose outcome was refused, since another had taken over
	Omitted   int64 // outcomes that were recorded without their result
	Pending   int64 // outcomes that are being written in the background now
}

// Stats returns the counts.
func (s *Store) Stats() Stats {
	c := &s.count
	return Stats{
		Begun: c.begun.Load(), TakenOver: c.takenOver.Load(), Cached: c.cached.Load(), Read: c.read.Load(), Joined: c.joined.Load(),
		InProgress: c.inProgress.Load(), Mismatched: c.mismatched.Load(), Unknown: c.unknown.Load(), ScopeFull: c.scopeFull.Load(),
		Done: c.done.Load(), Failed: c.failed.Load(), Released: c.released.Load(), Abandoned: c.abandoned.Load(),
		Fenced: c.fenced.Load(), Omitted: c.omitted.Load(), Pending: c.pending.Load(),
	}
}
