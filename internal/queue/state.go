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

	all         mirror.View      // of the total
	held, waits []mirror.Request // in the total, that belong to this queue
	missing     bool             // a request that is admitted here has not joined the total yet
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

// state reads what a key and its total are, as of one revision. If the stored default says that the keys share no
// total, a limiter that adopts what is stored has none either.
func (p *pair) state(ctx context.Context) (st State, err error) {
	q := p.key
	resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.TxnResponse, error) {
		return q.sess.KV().Txn(call).Then(clientv3.OpGet(q.Keys.Range, clientv3.WithPrefix()),
			clientv3.OpGet(q.base.Key), clientv3.OpGet(p.total.Keys.Range, clientv3.WithPrefix())).Commit()
	})
	if err != nil {
		return st, err
	}
	revision, base := resp.Header.Revision, mirror.ReadLimitRecord(limit.First(resp.Responses[1]))
	q.sess.See(revision)
	st.View = mirror.Read(q.Keys, 0, base, resp.Responses[0].GetResponseRange().Kvs, revision)
	if st.Total = base.Rev == 0 || base.Damaged || base.Limit.Total; !st.Total {
		return st, nil
	}
	st.all = mirror.Read(p.total.Keys, 0, mirror.LimitRecord{}, resp.Responses[2].GetResponseRange().Kvs, revision)
	var hold, wait []mirror.Request
	for _, r := range st.Holders {
		if t := p.next(st.all.Holders, r); t != nil {
			st.held = append(st.held, *t)
			r.Create = t.Create
			hold = append(hold, r)
			continue
		}
		wait = append(wait, r)
		if t := p.next(st.all.Waiters, r); t != nil {
			st.waits = append(st.waits, *t)
		} else {
			st.missing = true
		}
	}
	st.Holders, st.Waiters, st.Joins = hold, append(wait, st.Waiters...), len(wait)
	return st, nil
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

// moved reports whether a view of the total shows another state of the requests of this queue. Its cost does not
// depend on how many others there are.
func (s State) moved(all *mirror.Use) bool {
	return s.missing || slices.ContainsFunc(s.held, func(r mirror.Request) bool {
		b, _ := all.Brief(r.Key, r.Create, 0)
		return !b.Holds
	}) || slices.ContainsFunc(s.waits, func(r mirror.Request) bool {
		b, _ := all.Brief(r.Key, r.Create, 0)
		return !b.Waits
	})
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
	st, err := p.state(ctx)
	if err != nil || st.Joins == 0 {
		return f
	}
	if full := p.total.fullView(st.all, 0); !full.room(1) {
		return full
	}
	return f // the total has room by now
}
