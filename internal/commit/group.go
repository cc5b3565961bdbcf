package commit

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/batch"
)

// Group sends Txns of many callers as parts of one, when they come at the same time: one
// request, one Raft entry and one revision for all of them.
//
// etcd evaluates the compares of all parts before it applies any part. So no part may compare,
// read or write a key that another part writes. Of parts with the same subject only one is in
// a request; and no part of a group writes other keys that parts compare, such as a fence.
type Group struct {
	kv    clientv3.KV
	ctx   context.Context // ends requests that are under way
	queue batch.Queue[*part]
}

const (
	// groupsAtOnce is how many requests of a group are under way before further parts are
	// gathered. With fewer, a handful of callers wait for each other without need; with
	// more, fewer parts share a request.
	groupsAtOnce = 4
	// perGroup bounds the parts of one request. etcd accepts 128 operations in a Txn, and
	// in each part 128 less the number of parts.
	perGroup = 64
	// groupBytes bounds the values in one request. etcd accepts 1.5 MiB, keys included.
	groupBytes = 256 << 10
	// groupFor bounds how long a part waits for others, even if a request hangs.
	groupFor = 100 * time.Millisecond
)

// NewGroup returns a group whose requests end with ctx. background starts a goroutine, or
// returns false if none may be started any more.
func NewGroup(ctx context.Context, kv clientv3.KV, background func(func()) bool) *Group {
	g := &Group{kv: kv, ctx: ctx}
	g.queue = batch.Queue[*part]{AtOnce: groupsAtOnce, Most: perGroup, Wait: groupFor, Fits: fits, Send: g.send, Go: background}
	return g
}

// part is one caller's Txn and its result.
type part struct {
	subject         string
	bytes           int
	cmps            []clientv3.Cmp
	common          *common // a further condition, or nil
	then, otherwise []clientv3.Op
	sent            chan struct{}
	resp            *clientv3.TxnResponse
	err             error
}

func fits(with []*part, p *part) bool {
	bytes := p.bytes
	for _, w := range with {
		bytes += w.bytes
	}
	return bytes <= groupBytes && !slices.ContainsFunc(with, func(w *part) bool { return w.subject == p.subject })
}

// sharedError wraps the refusal of a request that had parts of several callers. The reason may
// be another part. So the error says of this part only that it was not applied, and the part is
// sent again alone, which shows whether etcd refuses it. It is not settled first: the same
// defect may keep it from being settled. Its text must differ from etcd's, by which clientv3
// knows errors.
type sharedError struct{ cause error }

func (e sharedError) Error() string { return "sent together with others: " + e.cause.Error() }

// Together says how a write may share a request with those of others: by which group, and what
// its subject is. The zero value is sent alone.
type Together struct {
	Group   *Group
	Subject string

	common *common // a further condition, or nil
}

// txn commits a Txn, alone or by the group. It is not sent if ctx has ended; once it is sent,
// only the end of sent ends it.
func (t Together) txn(ctx, sent context.Context, kv clientv3.KV, cmps []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	bytes := 0
	for _, op := range then {
		bytes += len(op.ValueBytes())
	}
	p := &part{subject: t.Subject, common: t.common, bytes: bytes, cmps: cmps, then: then, otherwise: otherwise, sent: make(chan struct{})}
	alone := func() {
		if p.err = ctx.Err(); p.err != nil {
			p.err = unsentError{p.err}
			return
		}
		p.resp, p.err = txn(sent, kv, p.conditions(), then, otherwise)
	}
	if t.Group == nil || bytes > groupBytes/4 {
		alone()
		return p.resp, p.err
	}
	if err := t.Group.queue.Join(ctx, p, p.sent, alone); err != nil { // it is under way with others
		select {
		case <-p.sent:
		case <-sent.Done():
			return nil, err
		}
	}
	return p.resp, p.err
}

// txn commits a Txn, in one call.
func txn(ctx context.Context, kv clientv3.KV, cmps []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	ctx, cancel := Call(ctx)
	defer cancel()
	return kv.Txn(ctx).If(cmps...).Then(then...).Else(otherwise...).Commit()
}

// send sends one request for all parts. Only the group's ctx ends it, not a caller's.
func (g *Group) send(parts []*part) {
	all := bundles(parts)
	ops := make([]clientv3.Op, len(all))
	for i, b := range all {
		ops[i] = b.op()
	}
	resp, err := txn(g.ctx, g.kv, nil, ops, nil)
	switch classify(err) {
	case refused, orphaned:
		err = sharedError{err}
	}
	for i, b := range all {
		for n, p := range b.parts {
			if p.err = err; err == nil {
				p.resp = b.response(resp.Responses[i].GetResponseTxn(), n)
				p.resp.Header = resp.Header
			}
			close(p.sent)
		}
	}
}
