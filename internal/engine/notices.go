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
		m.Asked = decodeStepDown(kv.Value)
	} else if token, ok = e.keys.ParseNotice(string(kv.Key)); ok {
		n := decodeNotice(kv.Value)
		m.Notice = &n
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

func decodeStepDown(value []byte) *record.Notice {
	n, ok := record.DecodeNotice(value)
	if !ok {
		n = record.Notice{Reason: "the request cannot be read"}
	}
	return &n
}

func decodeNotice(value []byte) record.Notice {
	n, ok := record.DecodeNotice(value)
	if !ok {
		n = record.Notice{Cause: record.CauseEvicted, Reason: "the notice cannot be read"}
	}
	return n
}

// Notice returns the notice of a request, if the watch has brought one.
func (e *Epoch) Notice(t *Ticket) (n record.Notice, ok bool) {
	if left := e.roll.mail(t); left.Notice != nil {
		return *left.Notice, true
	}
	return n, false
}

// FindNotice looks for a notice of one of this session's requests in etcd, too. It returns
// ctx's error if that ends before etcd has answered, unless the lease has ended and the
// notice with it.
func (e *Epoch) FindNotice(ctx context.Context, t *Ticket) (n record.Notice, ok bool, err error) {
	if n, ok := e.Notice(t); ok {
		return n, true, nil
	}
	// It was written in the same Txn, but this session's watch may lag.
	kvs, err := e.sess.Get(ctx, e.keys.Notice(t.Token))
	if err == nil && len(kvs) > 0 {
		return decodeNotice(kvs[0].Value), true, nil
	}
	n, ok = e.Notice(t) // the watch has brought it meanwhile, and it was removed
	if ok || err == nil || e.ctx.Err() != nil {
		return n, ok, nil
	}
	return n, false, ctx.Err()
}
