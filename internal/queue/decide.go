package queue

import (
	"errors"
	"time"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/rank"
)

// outcome is what became of one Txn that was to write a request.
type outcome int

const (
	written   outcome = iota
	refused           // its conditions were not met
	failed            // nothing was written
	unsettled         // it is not known
	occupied          // a foreign key has its name
	gone              // the lease's presence key is gone
	rewound           // its revision was met before it was sent
)

// outcomeOf returns the outcome of a creation. A request that it has written itself is later than
// seen, the greatest revision that was met before it was sent. One that it has found may be of an
// earlier Txn, and the session may have met later revisions since: it is no older than oldest.
func outcomeOf(res commit.Result, err error, seen, oldest int64) outcome {
	_, pending := errors.AsType[*commit.PendingError](err)
	switch {
	case pending:
		return unsettled
	case errors.Is(err, commit.ErrOccupied):
		return occupied
	case errors.Is(err, commit.ErrGone):
		return gone
	case err != nil:
		return failed
	case res.Token == 0:
		return refused
	case res.Token > seen, res.Found() && res.Token >= oldest:
		return written
	}
	return rewound
}

// step is what a call does next.
type step int

const (
	again       step = iota // at once: what was in the way is gone
	wait                    // what is in the way is about to go
	fail                    // with what is in the way
	writeIf                 // write the request if no other has come since the look
	writeAnyway             // write it and look whether it may stay
)

// afterRefusal decides what follows when the conditions of a request were not met, for a reason
// that resolve has found. conditional is set if the caller has conditions of its own.
func afterRefusal(reason error, bounded, conditional bool) step {
	switch {
	case reason == nil, errors.Is(reason, errRefused) && !conditional:
		return again
	case asOurs(reason) != nil && !bounded:
		return wait
	}
	return fail
}

const (
	// optimistic is how often a bounded request is written on the condition
	// that no other has come since the queue was read.
	optimistic = 4
	// ample is how many requests of one's own weight must fit besides for the first
	// failure of that condition to be enough.
	ample = 8
	// patience is how long tries that are in the way, and are about to go, are given the
	// time to do so.
	patience = 100 * time.Millisecond
)

// prospect is what a bounded call knows of its request before it is written.
type prospect struct {
	answer    rank.Answer
	ours      bool // its ID is that of an earlier request of this session that is about to go
	overtaken bool // by another request since the look
	round     int  // of looks
	free      int64
	weight    int64
	waited    time.Duration // since the first look
	counted   bool          // counts decide: see longQueue
	contended bool          // others come all the time: see joining.contends
}

// next decides what a bounded call does with its request.
func (p prospect) next() step {
	switch {
	case p.ours || p.answer == rank.Unclear:
		if p.waited > patience {
			return fail
		}
		return wait
	case p.answer == rank.Refuse:
		return fail
	case p.counted || p.contended:
		return writeAnyway
	case p.overtaken && p.free < ample*p.weight:
		return again
	case p.overtaken || p.round >= optimistic:
		return writeAnyway
	}
	return writeIf
}
