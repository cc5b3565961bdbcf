package concurrency

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/record"
)

// notice takes what another session has left for one of this session's requests, and
// removes it from etcd. For a request that is no permit (yet) it is kept with the request,
// for the caller, who will ask why.
func (e *epoch) notice(kv *mvccpb.KeyValue) {
	var m mail
	token, ok := e.keys.ParseStepDown(string(kv.Key))
	if ok {
		m.asked = decodeStepDown(kv.Value)
	} else if token, ok = e.keys.ParseNotice(string(kv.Key)); ok {
		n := decodeNotice(kv.Value)
		m.notice = &n
	} else {
		return // a foreign key
	}
	for t, h := range e.roll.deliver(token, m) {
		if m.asked != nil {
			h.askToStepDown(*m.asked)
			continue
		}
		report := h.evicted(*m.notice)
		e.drop(t)
		e.freeSlot(t)
		if report != nil {
			// Not here: this goroutine watches the presence key.
			e.sess.background(report)
		}
	}
	e.sess.background(func() {
		_, _ = commit.Erase(e.ctx, e.sess.client, string(kv.Key), kv.CreateRevision, nil)
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

// noticeFor looks for a notice of one of this session's requests. It returns ctx's error
// if that ends before etcd has answered, unless the lease has ended and the notice with it.
func (e *epoch) noticeFor(ctx context.Context, t *ticket) (n record.Notice, ok bool, err error) {
	if n, ok := e.noticed(t); ok {
		return n, true, nil
	}
	// It was written in the same Txn, but this session's watch may lag.
	kvs, err := get(ctx, e.sess.client, e.keys.Notice(t.token))
	if err == nil && len(kvs) > 0 {
		return decodeNotice(kvs[0].Value), true, nil
	}
	n, ok = e.noticed(t) // the watch has brought it meanwhile, and it was removed
	if ok || err == nil || e.ctx.Err() != nil {
		return n, ok, nil
	}
	return n, false, ctx.Err()
}

// whyGone returns why a waiting request's key is gone.
func (g *gate) whyGone(ctx context.Context, e *epoch, c *claim, begun time.Time) error {
	if n, ok := e.noticed(c.ticket); ok {
		return noticed(g.name, c.token, n)
	}
	// If all requests of a lease have gone, the first few calls find that out.
	leave, err := g.turn(ctx, &g.sess.asking, begun)
	if err != nil {
		return err
	}
	defer leave()
	if !e.valid() {
		return errEpoch
	}
	if n, ok, _ := e.noticeFor(ctx, c.ticket); ok {
		return noticed(g.name, c.token, n)
	}
	return errAnew // deleted by hand, or the lease is gone and we hear of it soon
}

// noticed returns the notice of a request, if the watch has brought one.
func (e *epoch) noticed(t *ticket) (n record.Notice, ok bool) {
	if left := e.roll.mail(t); left.notice != nil {
		return *left.notice, true
	}
	return n, false
}

// noticed turns a notice into an error.
func noticed(name string, token int64, n record.Notice) *LostError {
	err := &LostError{Name: name, Token: token, Cause: ErrEvicted, Reason: because(n)}
	if n.Cause == record.CauseReleased {
		err.Cause = ErrReleased
	}
	return err
}

// because says who has left a notice, and why.
func because(n record.Notice) string {
	switch {
	case n.By == "":
		return n.Reason
	case n.Reason == "":
		return "by " + n.By
	}
	return "by " + n.By + ": " + n.Reason
}
