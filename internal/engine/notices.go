package engine

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

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
	twins := e.roll.twins(token, m)
	if len(twins) == 0 {
		e.deliver(token, m)
	}
	e.sess.Background(func() {
		for _, t := range twins {
			e.deliverIfGone(t, *m.Notice)
		}
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

// deliverIfGone delivers a notice of an earlier release, which names no request, to one of several with
// its token: if the key of that one is gone.
func (e *Epoch) deliverIfGone(t *Ticket, n record.Notice) {
	kvs, err := e.sess.Get(e.ctx, t.Key)
	if err != nil && e.ctx.Err() != nil || err == nil && len(kvs) == 1 && kvs[0].CreateRevision == t.Token {
		return // it ends with the lease, or it is another one
	}
	n.Key = t.Key
	e.deliver(t.Token, Mail{Notice: &n})
}

// evicted ends the holder of a ticket by a notice. Hooks are not called here: this goroutine may be
// the one that watches the presence key.
func (e *Epoch) evicted(t *Ticket, h Holder, n *record.Notice) {
	report := h.Evicted(*n)
	e.Drop(t)
	e.Free(t)
	if report != nil {
		e.sess.Background(report)
	}
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
	found, err := e.sess.Read(ctx, e.keys.Notice(t.Token), clientv3.WithPrefix())
	if err == nil {
		for _, kv := range found.Kvs {
			if n := decodeNotice(kv.Value); n.For(t.Key) {
				return n, nil
			}
		}
	}
	n := e.Notice(t) // the watch has brought it meanwhile, and it was removed
	if n != nil || err == nil || e.ctx.Err() != nil {
		return n, nil
	}
	return nil, ctx.Err()
}
