package idempotency

import "sync"

// counts are the Stats of a store.
type counts struct {
	mu sync.Mutex
	Stats
}

// add adds to one of the counts.
func (c *counts) add(count *int64, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*count += n
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
	Unclaimed  int64 // handlers of middlewares that ran without a claim (FailOpen)

	Done      int64 // attempts whose result was recorded
	Failed    int64 // attempts whose failure was recorded
	Released  int64 // attempts that released their key
	Abandoned int64 // attempts that were left as lost
	Fenced    int64 // attempts that another one had taken over before they were settled
	Omitted   int64 // outcomes that were recorded without their result
	Pending   int64 // outcomes that are being written in the background now
}

// now returns the counts.
func (c *counts) now() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Stats
}
