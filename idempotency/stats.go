package idempotency

import "sync/atomic"

// counters are the counts behind Stats.
type counters struct {
	begun, takenOver, cached, read, joined, inProgress, mismatched, unknown, scopeFull atomic.Int64
	done, failed, released, abandoned, fenced, omitted, pending                        atomic.Int64
}

// Stats counts what a Store has done in this process.
type Stats struct {
	Begun      int64 // attempts that have begun, TakenOver included
	TakenOver  int64 // attempts that have begun after a lost one
	Cached     int64 // replays from this process's cache
	Read       int64 // replays that were read from etcd
	Joined     int64 // duplicates that got the outcome of another call in this process
	InProgress int64 // calls that returned ErrInProgress
	Mismatched int64 // calls that returned ErrMismatch
	Unknown    int64 // calls that returned ErrUnknown
	ScopeFull  int64 // calls that returned ErrScopeFull

	Done      int64 // attempts whose result was recorded
	Failed    int64 // attempts whose failure was recorded
	Released  int64 // attempts that released their key
	Abandoned int64 // attempts that were left as lost
	Fenced    int64 // attempts that another one had taken over before they were settled
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
