// Package limit is the stored limit of one queue: how it is read, stored once and changed.
package limit

import (
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Limit is the limit of a queue, as of the revisions of its records.
type Limit struct {
	N       int64
	Initial bool        // stored by a constructor's limit, not by SetLimit
	Lowered bool        // it replaced a greater one
	Total   bool        // it is the default of keys that share a total
	Rate    record.Rate // what it divides, of a rate limiter
	Revs    Revs
}

// Revs are the mod revisions of the records of a limit: the queue's own, and that of the default
// if there is one. 0 is a record that does not exist.
type Revs struct{ Own, Base int64 }

// RevsOf returns the revisions of the records that a view has used.
func RevsOf(l mirror.Limits) Revs { return Revs{l.Own.Rev, l.Base.Rev} }

// after reports whether one of the records is a later one, and none an earlier one.
func (r Revs) after(o Revs) bool { return r != o && r.Own >= o.Own && r.Base >= o.Base }

// Agrees reports whether a program that was built with a limit of n may use this one: it is
// the same, or it pauses, which must not keep programs from starting.
func (l Limit) Agrees(n int64) bool { return l.N == n || l.N == 0 && !l.Initial }

// Inherit is the default, in place of the key's own limit.
const Inherit int64 = -1

// change returns the record of a limit of n that replaces what a view shows, and whether it
// lowers the limit. The record carries on which requests had been admitted before.
func change(v mirror.View, n int64) (r record.Limit, lowers bool) {
	r = record.Limit{Limit: n, Through: v.Through, Previous: v.Limits.Previous()}
	if n == Inherit {
		n = v.Limits.Base.Limit.Limit
		r.Limit, r.Inherit = n, true
	}
	if lowers = v.Known && n < v.Limit; lowers {
		r.Previous = max(r.Previous, v.Limit)
	}
	r.Settled = r.Previous == 0 // each admitted request fits or is within Through
	return r, lowers
}

// settled returns the record of a limit that was lowered at a revision, made exact by a view of the
// queue just before that. ok is false if the view does not show which requests were admitted.
func settled(r record.Limit, at int64, before mirror.View) (exact record.Limit, ok bool) {
	if before.Limits.Previous() > 0 || !before.Known {
		return r, false
	}
	r.Through = max(r.Through, before.Through)
	r.Settled, r.Rate = true, r.Rate.StoredAt(at)
	return r, true
}

// changeBase returns the record of a default of n in place of another. It does not show which
// requests had been admitted by the former one, in any of the queues: Previous says which may have
// been, until the default is at least as great as all of those that it replaced.
func changeBase(from record.Limit, n int64) record.Limit {
	r := record.Limit{Limit: n, Total: from.Total, Previous: max(from.Previous, from.Limit)}
	if n >= r.Previous {
		r.Previous, r.Settled = 0, true
	}
	return r
}
