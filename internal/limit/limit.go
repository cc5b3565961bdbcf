// Package limit is the stored limit of one queue: how it is read, stored once and changed.
package limit

import (
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Limit is a limit as of the revision at which it was stored.
type Limit struct {
	N        int64
	Initial  bool // stored by a constructor's limit, not by SetLimit
	Lowered  bool // it replaced a greater one
	Revision int64
	value    string
}

// Agrees reports whether a program that was built with a limit of n may use this one: it is
// the same, or it pauses, which must not keep programs from starting.
func (l Limit) Agrees(n int64) bool { return l.N == n || l.N == 0 && !l.Initial }

// change returns the record of a limit of n that replaces what a view shows, and whether it
// lowers the limit. The record carries on which requests had been admitted before.
func change(v mirror.View, n int64) (r record.Limit, lowers bool) {
	r = record.Limit{Limit: n, Through: v.Through}
	if v.Record.Unsettled() {
		r.Previous = v.Record.Previous
	}
	if lowers = v.Known && n < v.Limit; lowers {
		r.Previous = max(r.Previous, v.Limit)
	}
	r.Settled = r.Previous == 0 // each admitted request fits or is within Through
	return r, lowers
}

// settled returns the record of a limit that was lowered, made exact by a view of the queue
// just before that. ok is false if the view does not show which requests were admitted.
func settled(r record.Limit, before mirror.View) (exact record.Limit, ok bool) {
	if before.Record.Unsettled() || !before.Known {
		return r, false
	}
	r.Through = max(r.Through, before.Through)
	r.Settled = true
	return r, true
}
