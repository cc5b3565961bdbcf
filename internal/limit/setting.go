package limit

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Setting is the limit of one queue. There are three kinds: that of NewFixed, a Store, and a Store with a Base, by
// which the default counts until the queue has a limit of its own. queue.Options chooses it. A mirror computes the limit in
// force as well, from what it follows (mirror/mirror.go).
type Setting interface {
	// Fixed returns the limit if it is not stored, and 0 otherwise.
	Fixed() int64
	// Seen returns the limit that was seen last, or nil. Forget forgets it.
	Seen() *Limit
	Forget()
	// Read returns the limit. ok is false if none is stored.
	Read(context.Context) (l Limit, ok bool, err error)
	// Init stores a limit if there is none, with the rate that it divides, and returns the one that is stored then.
	Init(ctx context.Context, n int64, rate record.Rate) (Limit, error)
	// Set changes a limit that is stored, as a view that is read shows it: see Store.
	Set(ctx context.Context, to Change, create bool, read func(context.Context) (mirror.View, error)) error
	// Reads are the reads of the records, for a Txn, whose responses Records takes, with its revision.
	Reads() []clientv3.Op
	Records(read []*etcdserverpb.ResponseOp, at int64) Records
	// Counts are Reads that also count the heavy requests of the queue, whose responses Counted takes.
	Counts() []clientv3.Op
	Counted(read []*etcdserverpb.ResponseOp) (r Records, heavy int64)
	// Learn returns the limit of the records and remembers it. ok is false if none is stored.
	Learn(Records) (l Limit, ok bool, err error)
	// Unchanged returns the conditions, for a Txn, that the records are those of the revisions.
	Unchanged(Revs) []clientv3.Cmp
}

// Change returns what replaces the limit that a view shows: another one, or Inherit, and the rate that it divides.
type Change func(was mirror.View) (n int64, rate record.Rate)

// To is the change to a limit that divides no rate.
func To(n int64) Change { return func(mirror.View) (int64, record.Rate) { return n, record.Rate{} } }

// SeenN returns the limit that was seen last, or 0.
func SeenN(k Setting) int64 {
	if l := k.Seen(); l != nil {
		return l.N
	}
	return 0
}

// Records are the records of a limit as they were read, each nil if it does not exist.
type Records struct {
	Own, Base *mvccpb.KeyValue
	At        int64 // the revision of the read, or 0 if that is not known
}

// Revs returns the revisions of the records.
func (r Records) Revs() Revs {
	var at Revs
	if r.Own != nil {
		at.Own = r.Own.ModRevision
	}
	if r.Base != nil {
		at.Base = r.Base.ModRevision
	}
	return at
}

// First returns the first key of a read, or nil.
func First(r *etcdserverpb.ResponseOp) *mvccpb.KeyValue {
	if kvs := r.GetResponseRange().Kvs; len(kvs) > 0 {
		return kvs[0]
	}
	return nil
}

// fixed is a limit that no record changes, of a queue without heavy requests.
type fixed struct{ limit Limit }

// NewFixed returns the limit of a mutex or an election.
func NewFixed(n int64) Setting { return &fixed{Limit{N: n}} }

func (f *fixed) Fixed() int64                                        { return f.limit.N }
func (f *fixed) Seen() *Limit                                        { return &f.limit }
func (f *fixed) Forget()                                             {}
func (f *fixed) Read(context.Context) (Limit, bool, error)           { return f.limit, true, nil }
func (f *fixed) Reads() []clientv3.Op                                { return nil }
func (f *fixed) Counts() []clientv3.Op                               { return nil }
func (f *fixed) Learn(Records) (Limit, bool, error)                  { return f.limit, true, nil }
func (f *fixed) Unchanged(Revs) []clientv3.Cmp                       { return nil }
func (f *fixed) Records([]*etcdserverpb.ResponseOp, int64) Records   { return Records{} }
func (f *fixed) Counted([]*etcdserverpb.ResponseOp) (Records, int64) { return Records{}, 0 }
func (f *fixed) Init(context.Context, int64, record.Rate) (Limit, error) {
	return f.limit, nil
}
func (f *fixed) Set(context.Context, Change, bool, func(context.Context) (mirror.View, error)) error {
	return errors.ErrUnsupported
}
