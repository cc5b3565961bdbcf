package engine

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/record"
)

// notice delivers what another session has left for one of this session's requests, and
// removes it from etcd. If the request does not hold yet, it is kept with the request, for
// the caller that waits.
func (e *Epoch) notice(kv *mvccpb.KeyValue) {
	var m Mail
	token, ok := e.keys.ParseStepDown(string(kv.Key))
	if ok {
		m.Asked = decode(kv.Value, record.Notice{Reason: "the request cannot be read"})
	} else if token, ok = e.keys.ParseNotice(string(kv.Key)); ok {
		m.Notice = decodeNotice(kv.Value)
	} else {
		return // a foreign key
	}
	for t, h := range e.roll.deliver(token, m) {
		if m.Asked != nil {
			h.StepDown(*m.Asked)
			continue
		}
		report := h.Evicted(*m.Notice)
		e.Drop(t)
		e.Free(t)
		if report != nil {
			// Not here: this goroutine watches the presence key.
			e.sess.Background(report)
		}
	}
	e.sess.Background(func() {
		_, _ = commit.Erase(e.ctx, e.sess.kv, string(kv.Key), kv.CreateRevision, nil)
	})
}

func decodeNotice(value []byte) *record.Notice {
	return decode(value, record.Notice{Cause: record.CauseEvicted, Reason: "the notice cannot be read"})
}

// decode reads a stored notice, or returns unreadable.
func decode(value []byte, unreadable record.Notice) *record.Notice {
	if n, ok := record.DecodeNotice(value); ok {
		return &n
	}
	return &unreadable
}

// FindNotice looks for the notice of one of this session's requests in etcd, too, and
// returns nil if there is none. It returns ctx's error if that ends before etcd has answered,
// unless the lease has ended and the notice with it.
func (e *Epoch) FindNotice(ctx context.Context, t *Ticket) (*record.Notice, error) {
	if n := e.Notice(t); n != nil {
		return n, nil
	}
	// It was written in the same Txn, but this session's watch may lag.
	kvs, err := e.sess.Get(ctx, e.keys.Notice(t.Token))
	if err == nil && len(kvs) > 0 {
		return decodeNotice(kvs[0].Value), nil
	}
	n := e.Notice(t) // the watch has brought it meanwhile, and it was removed
	if n != nil || err == nil || e.ctx.Err() != nil {
		return n, nil
	}
	return nil, ctx.Err()
}
