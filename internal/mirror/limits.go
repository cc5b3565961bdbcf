package mirror

import (
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/rank"
	"github.com/etcdkit/etcdkit/internal/record"
)

// LimitRecord is a limit's record as of one revision. Rev is 0 if there is none.
type LimitRecord struct {
	record.Limit
	Rev     int64
	Damaged bool                   // it cannot be read
	Why     record.UnreadableError // if so
}

// ReadLimitRecord reads a limit; nil is a key that does not exist.
func ReadLimitRecord(kv *mvccpb.KeyValue) LimitRecord {
	if kv == nil {
		return LimitRecord{}
	}
	l, ok := ReadLimit(kv)
	if !ok {
		return LimitRecord{Rev: kv.ModRevision, Damaged: true, Why: record.Why(string(kv.Key), kv.Value)}
	}
	return LimitRecord{Limit: l, Rev: kv.ModRevision}
}

// Unreadable returns why the record cannot be read, or nil.
func (l LimitRecord) Unreadable() error {
	if l.Damaged {
		return l.Why
	}
	return nil
}

// Limits are the records that limit one queue. Base is that of the default, which counts where
// the queue has no limit of its own.
type Limits struct {
	Own, Base LimitRecord
}

// InForce returns the record whose limit counts. Its Rev is 0 if there is none.
func (l Limits) InForce() LimitRecord {
	if l.Own.Rev == 0 || l.Own.Inherit && !l.Own.Damaged {
		return l.Base
	}
	return l.Own
}

// Previous returns the greatest limit by which requests may have been admitted that the records
// do not show, or 0 if they show all.
func (l Limits) Previous() (most int64) {
	for _, s := range [...]LimitRecord{l.Own, l.InForce()} {
		if s.Unsettled() {
			most = max(most, s.Limit.Previous)
		}
	}
	return most
}

// mayHold reports whether a waiting request may have been admitted before one of the records was
// written, given the weight of all requests before it.
func (l Limits) mayHold(ahead int64, e rank.Entry) bool {
	for _, s := range [...]LimitRecord{l.Own, l.InForce()} {
		if s.Unsettled() && e.Create < s.Rev && rank.Fits(ahead, e.Weight, s.Limit.Previous) {
			return true
		}
	}
	return false
}
