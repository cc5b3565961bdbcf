package commit

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/batch"
)

// Group sends Txns of many callers as parts of one, when they come at the same time: one
// request and one Raft entry for all of them, and one revision.
//
// etcd compares for all parts before it does any of them. So no part may compare, read or
// write what another one writes: of those who name the same subject only one is in a
// request, and what else a part compares, such as a fence, no part of the group writes.
type Group struct {
	kv    clientv3.KV
	ctx   context.Context // ends requests under way
	queue batch.Queue[*part]
}

const (
	// groupsAtOnce is how many requests of a group are under way before others gather:
	// with fewer a handful of callers wait for each other for nothing, with more less
	// goes together.
	groupsAtOnce = 4
	// perGroup is how many parts one request has. etcd takes 128 operations in a Txn, in
	// this one and in each part less by the number of parts.
	perGroup = 64
	// groupBytes bounds the values in one request. etcd takes 1.5 MiB, keys and all.
	groupBytes = 256 << 10
	// groupFor bounds how long a part waits for company. One that hangs holds up nobody.
	groupFor = 100 * time.Millisecond
)

// NewGroup returns a group whose requests end with ctx. background starts a goroutine, or
// tells that none may be started any more.
func NewGroup(ctx context.Context, kv clientv3.KV, background func(func()) bool) *Group {
	g := &Group{kv: kv, ctx: ctx}
	g.queue = batch.Queue[*part]{AtOnce: groupsAtOnce, Most: perGroup, Wait: groupFor, Fits: fits, Send: g.send, Go: background}
	return g
}

// part is one caller's Txn, and what came of it.
type part struct {
	subject         string
	bytes           int
	cmps            []clientv3.Cmp
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

// othersError is what etcd has refused a request for that had parts of others: it may be for
// one of those. So of this part it says only that it was not applied, and it has to go
// alone, which tells. It is not settled first: what is wrong with it may keep it from that.
// Its text must not be etcd's, by which clientv3 knows errors.
type othersError struct{ cause error }

func (e othersError) Error() string { return "sent together with others: " + e.cause.Error() }

// Together says how a write may go with those of others: by which group, and what it is
// about. The zero value has it go alone.
type Together struct {
	Group   *Group
	Subject string
}

// txn commits a Txn, alone or by the group. It is not sent any more when ctx has ended;
// once it is, only sent ends it.
func (t Together) txn(ctx, sent context.Context, kv clientv3.KV, cmps []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	bytes := 0
	for _, op := range then {
		bytes += len(op.ValueBytes())
	}
	p := &part{subject: t.Subject, bytes: bytes, cmps: cmps, then: then, otherwise: otherwise, sent: make(chan struct{})}
	alone := func() {
		if p.err = ctx.Err(); p.err != nil {
			p.err = unsentError{p.err}
			return
		}
		p.resp, p.err = txn(sent, kv, cmps, then, otherwise)
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

// send sends one request for all of them. Nobody's ctx ends it, only the group's.
func (g *Group) send(parts []*part) {
	ops := make([]clientv3.Op, len(parts))
	for i, p := range parts {
		ops[i] = clientv3.OpTxn(p.cmps, p.then, p.otherwise)
	}
	resp, err := txn(g.ctx, g.kv, nil, ops, nil)
	switch classify(err) {
	case refused, orphaned:
		err = othersError{err}
	}
	for i, p := range parts {
		if p.err = err; err == nil {
			p.resp = (*clientv3.TxnResponse)(resp.Responses[i].GetResponseTxn())
			p.resp.Header = resp.Header
		}
		close(p.sent)
	}
}
