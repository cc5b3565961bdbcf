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
	token, request, ok := e.keys.ParseStop(string(kv.Key))
	if ok {
		m.Asked = decode(kv, request, record.Notice{})
	} else if token, request, ok = e.keys.ParseNotice(string(kv.Key)); ok {
		m.Notice = decodeNotice(kv, request)
	} else {
		return // a foreign key
	}
	e.deliver(token, m)
	e.sess.Background(func() {
		_, _ = commit.Erase(e.ctx, e.sess.kv, string(kv.Key), kv.CreateRevision, nil)
	})
}

func (e *Epoch) deliver(token int64, m Mail) {
	for t, h := range e.roll.deliver(token, m) {
		if m.Notice != nil {
			e.evicted(t, h, m.Notice)
		} else {
			h.StepDown(*m.Asked)
		}
	}
}

// evicted ends the holder of a ticket by a notice. Hooks are not called in this goroutine: it may be
// the one that watches the presence key.
func (e *Epoch) evicted(t *Ticket, h Holder, n *record.Notice) {
	report := h.Evicted(*n)
	e.Drop(t)
	e.Free(t)
	if report != nil {
		e.sess.Report(report)
	}
}

func decodeNotice(kv *mvccpb.KeyValue, request string) *record.Notice {
	return decode(kv, request, record.Notice{Cause: record.CauseEvicted})
}

// decode reads a stored notice for a request. One that cannot be read is unreadable, with why as its reason.
func decode(kv *mvccpb.KeyValue, request string, unreadable record.Notice) *record.Notice {
	n, ok := record.DecodeNotice(kv.Value)
	if !ok {
		n = unreadable
		n.Reason = record.Why(string(kv.Key), kv.Value).Error()
	}
	n.Key = request
	return &n
}

// FindNotice looks for the notice of one of this session's requests in etcd, too, and
// returns nil if there is none. It returns etcd's error if that refuses the read, and ctx's, joined with the last of etcd's,
// if ctx ends before etcd has answered, unless the lease has ended and the notice with it.
func (e *Epoch) FindNotice(ctx context.Context, t *Ticket) (*record.Notice, error) {
	if n := e.Notice(t); n != nil {
		return n, nil
	}
	// It was written in the same Txn, but this session's watch may lag.
	kvs, err := e.sess.Get(ctx, e.keys.Notice(t.Token, t.Key))
	if err == nil && len(kvs) > 0 {
		return decodeNotice(kvs[0], t.Key), nil
	}
	n := e.Notice(t) // the watch has brought it meanwhile, and it was removed
	if n != nil || err == nil || e.ctx.Err() != nil {
		return n, nil //nolint:nilerr // the notice has ended with the lease
	}
	return nil, err
}
