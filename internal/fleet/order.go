package fleet

import (
	"cmp"
	"time"
)

// Rank is what a list of queues is sorted by.
type Rank struct {
	Election   bool // its candidates wait for as long as the leader leads
	OldestWait time.Time
	Used       int64
	Name       string
}

// Compare sorts elections behind the others. Within them the oldest wait is first, and queues without waiters
// follow, the most used first. What is equal in that is sorted by name.
func (r Rank) Compare(other Rank) int {
	return cmp.Or(last(r.Election, other.Election), CompareAges(r.OldestWait, other.OldestWait), cmp.Compare(other.Used, r.Used), cmp.Compare(r.Name, other.Name))
}

// CompareAges sorts earlier times first, and those that are not known last.
func CompareAges(a, b time.Time) int { return cmp.Or(last(a.IsZero(), b.IsZero()), a.Compare(b)) }

// last sorts what is so behind the others.
func last(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
