package fleet

import "github.com/etcdkit/etcdkit/internal/record"

// Request is one request of a queue.
type Request struct {
	Token, Weight, Lease int64
	Owner, ID, Note      string // with Options.Details
	Requested            int64  // as the request says; if it cannot be read, when it was first seen
	Since                int64  // the earliest time of the grant; 0: it waits
	MaxHold              int64  // or 0
}

// Requests returns the holders and the waiters of a queue, in order, with Options.Details. most bounds
// what is returned of each, and the waiters begin with the one at from.
func (l *Queue) Requests(from, most int) (holders, waiters []Request) {
	rest := l.order[l.holders:]
	rest = rest[max(0, min(from, len(rest))):]
	return describe(l.order[:min(l.holders, most)]), describe(rest[:min(most, len(rest))])
}

// Of returns the requests of one session, in the order of the queue: those that hold, and those that wait. With
// Options.Details.
func (l *Queue) Of(lease int64) (holders, waiters []Request) {
	for i, e := range l.order {
		switch {
		case e.lease != lease:
		case i < l.holders:
			holders = append(holders, e.describe())
		default:
			waiters = append(waiters, e.describe())
		}
	}
	return holders, waiters
}

// Each calls fn with each request, in the order of the queue, until it returns false. With Options.Details.
func (l *Queue) Each(fn func(r Request, holds bool) bool) {
	for i, e := range l.order {
		if !fn(e.describe(), i < l.holders) {
			return
		}
	}
}

func describe(all []ranked) []Request {
	out := make([]Request, len(all))
	for i, e := range all {
		out[i] = e.describe()
	}
	return out
}

func (e ranked) describe() Request {
	out := Request{Token: e.create, Weight: e.weight, Lease: e.lease, Requested: e.at, Since: e.since, MaxHold: e.maxHold}
	if e.value != nil {
		r, _ := record.DecodeRequest(*e.value)
		out.Owner, out.ID, out.Note = r.Owner, r.ID, r.Note
	}
	return out
}
