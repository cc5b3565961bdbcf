package queue

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

// State is a state of a queue, as it was read or as its mirror has shown it. Of a key with a total, Holders are
// the requests that hold in the total, with the tokens that they have there, by which their permits are known. Those
// that wait for the total are the first of Waiters, and use the limit of the key.
type State struct {
	mirror.View
	Total bool // the requests of this queue join a total
	Joins int  // so many of Waiters wait for it

	in joined
}

// State reads the present state. It ends with engine.ErrClosed if the session is closed.
func (q *Queue) State(ctx context.Context) (st State, err error) {
	err = q.sess.Do(ctx, func(ctx context.Context) (err error) {
		if q.pair != nil {
			st, err = q.pair.state(ctx)
			return err
		}
		st.View, err = q.Read(ctx)
		return err
	})
	return st, err
}

// bothViews are a key and its total, as of one revision.
type bothViews struct {
	at, all mirror.View
	shared  bool // false if the stored default says that the keys share no total: then a limiter that adopts what is stored has none either
}

// read reads both queues.
func (p *pair) read(ctx context.Context) (b bothViews, err error) {
	q := p.key
	resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.TxnResponse, error) {
		return q.sess.KV().Txn(call).Then(clientv3.OpGet(q.Keys.Range, clientv3.WithPrefix()),
			clientv3.OpGet(q.base.Key), clientv3.OpGet(p.total.Keys.Range, clientv3.WithPrefix())).Commit()
	})
	if err != nil {
		return b, err
	}
	revision, base := resp.Header.Revision, mirror.ReadStored(limit.First(resp.Responses[1]))
	q.sess.See(revision)
	b.at = mirror.Read(q.Keys, 0, base, resp.Responses[0].GetResponseRange().Kvs, revision)
	b.all = mirror.Read(p.total.Keys, 0, mirror.Stored{}, resp.Responses[2].GetResponseRange().Kvs, revision)
	b.shared = base.Rev == 0 || base.Damaged || base.Limit.Total
	return b, nil
}

// next returns the request in the queue of the total that belongs to one at the key, or nil.
func (p *pair) next(in []mirror.Request, r mirror.Request) *mirror.Request {
	names := p.keys(r.Slot)
	i := slices.IndexFunc(in, func(t mirror.Request) bool { return slices.Contains(names, t.Key) })
	if i < 0 {
		return nil
	}
	return &in[i]
}

// joined are the requests in the total that belong to a key.
type joined struct {
	requests []mirror.Request
	held     int  // as many of the first are admitted
	missing  bool // a request that is admitted at the key has not joined yet
}

// joined returns the requests in the total that belong to those that are admitted at the key.
func (p *pair) joined(b bothViews) (in joined) {
	for _, r := range b.at.Holders {
		if t := p.next(b.all.Holders, r); t != nil {
			in.requests = slices.Insert(in.requests, in.held, *t)
			in.held++
		} else if t = p.next(b.all.Waiters, r); t != nil {
			in.requests = append(in.requests, *t)
		} else {
			in.missing = true
		}
	}
	return in
}

// state reads what a key and its total are now.
func (p *pair) state(ctx context.Context) (State, error) {
	b, err := p.read(ctx)
	if err != nil || !b.shared {
		return State{View: b.at}, err
	}
	st := State{View: b.at, Total: true, in: p.joined(b)}
	var hold, wait []mirror.Request
	for _, r := range b.at.Holders {
		if t := p.next(b.all.Holders, r); t != nil {
			r.Create = t.Create
			hold = append(hold, r)
		} else {
			wait = append(wait, r)
		}
	}
	st.Holders, st.Waiters, st.Joins = hold, append(wait, b.at.Waiters...), len(wait)
	return st, nil
}

// causeFor bounds the read that finds which level has refused a request.
const causeFor = 500 * time.Millisecond

// cause returns the refusal by the total in place of that by a key which is full because one of its requests
// waits for the total (N5 in internal/proof/tested-failures.md).
func (p *pair) cause(f *Full) *Full {
	if p == nil || f.Unseen {
		return f
	}
	ctx, cancel := context.WithTimeout(p.key.sess.Context(), causeFor) // the caller's may have ended
	defer cancel()
	n, _, err := p.total.Count(ctx)
	if err != nil {
		return f
	}
	l, stored, err := p.total.Limit.Learn(n.Records)
	if err != nil || stored && n.Others == 0 && n.Light <= l.N {
		return f // no request waits for the total
	}
	b, err := p.read(ctx)
	if err != nil || !slices.ContainsFunc(b.at.Holders, func(r mirror.Request) bool { return p.next(b.all.Holders, r) == nil }) {
		return f
	}
	return p.total.fullView(b.all, 0)
}
