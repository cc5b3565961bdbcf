// Package rank is the pure core of a semaphore: requests in revision order, a limit, and which
// requests are admitted. It does no I/O, reads no clock and is not safe for concurrent use.
//
// The rule, in one place so that it can be replaced: requests are in the order of their create
// revision; a request fits if the weight of all live requests before it plus its own is within
// the limit. The sums only grow along the queue, so the admitted requests are always its front
// part, and a single revision, Through, separates holders from waiters. At a fixed limit that
// point never moves back: later requests get later revisions, and weights never change. After
// the limit is lowered, nothing is admitted until the sums fit again, and no holder loses its
// permit.
package rank

import (
	"cmp"
	"slices"
)

// Fits is the admission rule: whether a request of this weight may enter, given
// the weight of all live requests before it.
func Fits(ahead, weight, limit int64) bool { return ahead+weight <= limit }

// TooHeavy reports whether a weight never fits; a limit of 0 only pauses.
func TooHeavy(weight, limit int64) bool { return limit > 0 && weight > limit }

// Entry is one live request.
type Entry struct {
	Key    string // breaks ties of Create
	Create int64  // create revision: the age and the token
	Weight int64
	Try    bool // may be removed at once, so it is no reason to refuse others
}

func (e Entry) before(o Entry) int {
	return cmp.Or(cmp.Compare(e.Create, o.Create), cmp.Compare(e.Key, o.Key))
}

// Queue is one queue as of one revision.
type Queue struct {
	entries []Entry
	held    int   // entries[:held] are admitted
	used    int64 // their weight
	limit   int64
	known   bool // whether a limit was ever set; nothing is admitted before
	through int64
}

// Reset replaces the entries. What was admitted before stays admitted: Through is kept, because
// admission lasts as long as the key lives.
func (q *Queue) Reset(entries []Entry) {
	q.entries = slices.SortedFunc(slices.Values(entries), Entry.before)
	q.recount()
}

// SetLimit sets the limit and the token up to which an earlier limit has admitted. A limit of 0
// pauses. It returns the entries that it admits.
func (q *Queue) SetLimit(limit, through int64) (admitted []Entry) {
	q.limit, q.known = limit, true
	if through > q.through {
		q.through = through
		q.recount()
	}
	return q.Admit()
}

// Restart is SetLimit that forgets what was admitted beyond through.
func (q *Queue) Restart(limit, through int64) (admitted []Entry) {
	q.limit, q.known, q.through = limit, true, through
	q.recount()
	return q.Admit()
}

// ForgetLimit makes the limit unknown: nothing is admitted until it is set.
func (q *Queue) ForgetLimit() { q.known = false }

// recount computes the admitted front part from Through.
func (q *Queue) recount() {
	q.held, q.used = 0, 0
	for q.held < len(q.entries) && q.entries[q.held].Create <= q.through {
		q.used += q.entries[q.held].Weight
		q.held++
	}
}

// Insert adds an entry. Call Admit when all changes of a revision are made.
func (q *Queue) Insert(e Entry) {
	at, found := slices.BinarySearchFunc(q.entries, e, Entry.before)
	if found {
		return
	}
	q.entries = slices.Insert(q.entries, at, e)
	if at < q.held || e.Create <= q.through {
		q.held++
		q.used += e.Weight
	}
}

// Delete removes an entry, if it is there.
func (q *Queue) Delete(key string, create int64) bool {
	at, found := q.find(key, create)
	if !found {
		return false
	}
	if at < q.held {
		q.held--
		q.used -= q.entries[at].Weight
	}
	q.remove(at)
	return true
}

// remove closes the gap from its shorter side: most requests leave at the front, where a crowd
// that waits behind them is not moved.
func (q *Queue) remove(at int) {
	if at > len(q.entries)/2 {
		q.entries = slices.Delete(q.entries, at, at+1)
		return
	}
	copy(q.entries[1:at+1], q.entries[:at])
	q.entries[0] = Entry{}
	q.entries = q.entries[1:]
}

// Admit admits the entries that fit and returns them, in order. The result is valid until the
// next call on q.
func (q *Queue) Admit() []Entry {
	first := q.held
	for q.known && q.held < len(q.entries) && Fits(q.used, q.entries[q.held].Weight, q.limit) {
		e := q.entries[q.held]
		q.used += e.Weight
		q.through = max(q.through, e.Create)
		q.held++
	}
	return q.entries[first:q.held]
}

func (q *Queue) find(key string, create int64) (int, bool) {
	return slices.BinarySearchFunc(q.entries, Entry{Key: key, Create: create}, Entry.before)
}

// Position returns how many requests are before an entry and whether it is admitted. ok is
// false if the entry is not in the queue.
func (q *Queue) Position(key string, create int64) (ahead int, admitted, ok bool) {
	at, ok := q.find(key, create)
	return at, ok && at < q.held, ok
}

// UpTo returns the weight of an entry and of all before it, or 0 if it is not in the queue.
func (q *Queue) UpTo(key string, create int64) (weight int64) {
	at, ok := q.find(key, create)
	if !ok {
		return 0
	}
	for _, e := range q.entries[:at+1] {
		weight += e.Weight
	}
	return weight
}

// Limit returns the limit, and whether one is known.
func (q *Queue) Limit() (limit int64, known bool) { return q.limit, q.known }

// Through returns the greatest token that was ever admitted.
func (q *Queue) Through() int64 { return q.through }

// Holders returns the admitted entries, in order; they share q's memory.
func (q *Queue) Holders() []Entry { return q.entries[:q.held] }

// Waiters returns the other entries, in order; they share q's memory.
func (q *Queue) Waiters() []Entry { return q.entries[q.held:] }

// Used returns the weight of the admitted entries. After the limit was lowered it may exceed
// the limit.
func (q *Queue) Used() int64 { return q.used }

// Asked reports whether a request waits, or whether the entries do not fit the limit together: it was
// lowered, or is not known.
func (q *Queue) Asked() bool { return !q.known || q.held < len(q.entries) || q.used > q.limit }

// Unmark removes the mark of a try from the entries for which lasting returns true: they hold, and
// are not about to be removed.
func (q *Queue) Unmark(lasting func(token int64) bool) {
	for i := range q.entries {
		if q.entries[i].Try && lasting(q.entries[i].Create) {
			q.entries[i].Try = false
		}
	}
}

// Leave gives the mark of a try to the entries for which leaves returns true: they are being removed.
func (q *Queue) Leave(leaves func(key string) bool) {
	for i := range q.entries {
		q.entries[i].Try = q.entries[i].Try || leaves(q.entries[i].Key)
	}
}

// Bounded decides for a caller that does not want to wait behind more than maxWaiters others:
// one that would join at the end or, with a token, one that is in the queue.
func (q *Queue) Bounded(token, weight int64, maxWaiters int) Answer {
	var all, lasting sum
	for i, e := range q.entries {
		if token > 0 && e.Create >= token {
			break
		}
		all.add(e, i < q.held)
		if !e.Try {
			lasting.add(e, i < q.held)
		}
	}
	switch {
	case q.known && all.accepts(weight, q.limit, maxWaiters):
		return Enter
	case q.known && lasting.accepts(weight, q.limit, maxWaiters):
		return Unclear
	default:
		return Refuse
	}
}

// Answer is the result of Bounded.
type Answer int

// The results of Bounded.
const (
	Refuse  Answer = iota // the queue is too long, whatever becomes of the tries
	Unclear               // only tries are in the way, and they may be removed at once
	Enter                 // the caller fits, or may wait
)

type sum struct {
	weight  int64
	waiters int
}

func (s *sum) add(e Entry, held bool) {
	s.weight += e.Weight
	if !held {
		s.waiters++
	}
}

func (s *sum) accepts(weight, limit int64, maxWaiters int) bool {
	return Fits(s.weight, weight, limit) || s.waiters < maxWaiters
}
