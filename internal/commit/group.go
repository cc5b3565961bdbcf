package commit

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/batch"
)

// Group sends Txns of many callers as parts of one, when they come at the same time: one
// request, one Raft entry and one revision for all of them.
//
// etcd evaluates the compares of all parts before it applies any part. So no part may compare,
// read or write a key that another part writes. Of parts with a subject in common only one is in
// a request; and no part of a group writes other keys that parts compare, such as a fence.
//
// A part does not wait for others while one with its subject waits or is under way: it is sent at
// once, alone. So writes of one subject are no slower than without a group, and cannot meet in a
// request.
type Group struct {
	kv    clientv3.KV
	ctx   context.Context // ends requests that are under way
	queue batch.Queue[*part]

	mu   sync.Mutex
	busy map[string]int // the parts that wait or are under way, by subject
}

const (
	// perGroup bounds the parts of one request. etcd accepts 128 operations in a Txn, and
	// in each part 128 less the number of parts.
	perGroup = 64
	// perPart bounds the operations of a part that shares a request, far below what etcd accepts.
	perPart = 32
	// groupBytes bounds the keys and values in one request. etcd accepts 1.5 MiB.
	groupBytes = 256 << 10
	// groupFor bounds how long a part waits for others, even if a request hangs.
	groupFor = 100 * time.Millisecond
)

// NewGroup returns a group whose requests end with ctx. atOnce is how many are under way before
// further parts are gathered: with fewer, a handful of callers wait for each other without need;
// with more, fewer parts share a request. background starts a goroutine, or
// returns false if none may be started any more.
func NewGroup(ctx context.Context, kv clientv3.KV, atOnce int, background func(func()) bool) *Group {
	g := &Group{kv: kv, ctx: ctx, busy: map[string]int{}}
	g.queue = batch.Queue[*part]{AtOnce: atOnce, Most: perGroup, Wait: groupFor, Fits: fits, Send: g.send, Go: background}
	return g
}

// part is one caller's Txn and its result.
type part struct {
	batch.Place
	Together
	bytes           int // known if there is a group
	cmps            []clientv3.Cmp
	then, otherwise []clientv3.Op
	resp            *clientv3.TxnResponse
	err             error
}

func fits(with []*part, p *part) bool {
	bytes := p.bytes
	for _, w := range with {
		bytes += w.bytes
	}
	return bytes <= groupBytes
}

// bytesOf returns the length of the keys and values in a Txn.
func bytesOf(cmps []clientv3.Cmp, then, otherwise []clientv3.Op) (n int) {
	for _, c := range cmps {
		n += len(c.KeyBytes()) + len(c.ValueBytes())
	}
	for _, ops := range [...][]clientv3.Op{then, otherwise} {
		for _, op := range ops {
			if op.IsTxn() {
				n += bytesOf(op.Txn())
			} else {
				n += len(op.KeyBytes()) + len(op.RangeBytes()) + len(op.ValueBytes())
			}
		}
	}
	return n
}

// begin records that a part with those subjects is on its way, and reports whether it is the only
// one: whether it may wait for others.
func (g *Group) begin(subjects []string) (only bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	only = true
	for _, s := range subjects {
		only = only && g.busy[s] == 0
		g.busy[s]++
	}
	return only
}

// end is for parts that are not under way any more.
func (g *Group) end(parts ...*part) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range parts {
		for _, s := range p.Subjects {
			if g.busy[s]--; g.busy[s] == 0 {
				delete(g.busy, s)
			}
		}
	}
}

// sharedError wraps the refusal of a request that had parts of several callers. The reason may
// be another part. So the error says of this part only that it was not applied, and the part is
// sent again alone, which shows whether etcd refuses it. It is not settled first: the same
// defect may keep it from being settled. Its text must differ from etcd's, by which clientv3
// knows errors.
type sharedError struct{ cause error }

func (e sharedError) Error() string { return "sent together with others: " + e.cause.Error() }

// shared reports whether a write was refused together with others. There is nothing to wait for
// before it is sent alone.
func shared(err error) bool { _, ok := err.(sharedError); return ok } //nolint:errorlint // it is never wrapped

// Together says how a write may share a request with those of others: by which group, and what
// its subjects are: what it writes, compares or reads of what parts of the group write. The zero
// value is sent alone.
type Together struct {
	Group    *Group
	Subjects []string

	common *common // a further condition, or nil
}

// part returns a caller's Txn.
func (t Together) part(cmps []clientv3.Cmp, then, otherwise []clientv3.Op) *part {
	return &part{Together: t, cmps: cmps, then: then, otherwise: otherwise}
}

// begin records that a part is on its way, and reports whether it may wait for others of its group. In any case end has to be
// called when it is not under way any more.
func (p *part) begin() (joins bool) {
	if p.Group == nil {
		return false
	}
	p.bytes = bytesOf(p.cmps, p.then, p.otherwise)
	only := p.Group.begin(p.Subjects)
	return only && p.bytes <= groupBytes/4 && max(len(p.cmps), len(p.then), len(p.otherwise)) <= perPart
}

func (p *part) end() {
	if p.Group != nil {
		p.Group.end(p)
	}
}

// alone sends a part in a request of its own, unless ctx has ended. Only the end of sent ends the request.
func (p *part) alone(ctx, sent context.Context, kv clientv3.KV) {
	if err := ctx.Err(); err != nil {
		p.err = unsentError{err}
		return
	}
	p.resp, p.err = txn(sent, kv, p.conditions(), p.then, p.otherwise)
}

// txn commits a Txn, alone or by the group. It is not sent if ctx has ended; the end of ctx ends a request of its own, and the
// wait for one with others.
func (t Together) txn(ctx context.Context, kv clientv3.KV, cmps []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	p := t.part(cmps, then, otherwise)
	if !p.begin() {
		defer p.end()
		p.alone(ctx, ctx, kv)
		return p.resp, p.err
	}
	turn, err := t.Group.queue.Join(ctx, p)
	switch {
	case err != nil:
		return nil, err
	case turn == batch.Together:
		return p.resp, p.err
	case turn == batch.First:
		defer t.Group.queue.Next()
	}
	defer p.end()
	p.alone(ctx, ctx, kv)
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
	for i := range all {
		ops[i] = all[i].op()
	}
	resp, err := txn(g.ctx, g.kv, nil, ops, nil)
	g.end(parts...) // before their callers begin with the next writes of the same subjects
	switch classify(err) {
	case refused, orphaned:
		err = sharedError{err}
	}
	for i := range all {
		b, answer := &all[i], (*etcdserverpb.TxnResponse)(nil)
		if err == nil {
			answer = resp.Responses[i].GetResponseTxn()
		}
		if b.single != nil {
			b.answered(b.single, 0, answer, resp, err)
		}
		for n, p := range b.parts {
			b.answered(p, n, answer, resp, err)
		}
	}
}

// answered gives part n of a bundle its response, of that to the bundle in that to the request.
func (b *bundle) answered(p *part, n int, answer *etcdserverpb.TxnResponse, request *clientv3.TxnResponse, err error) {
	if p.err = err; err == nil {
		p.resp = b.response(answer, n)
		p.resp.Header = request.Header
	}
	p.Notify()
}
