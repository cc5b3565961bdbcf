package etcdfake

import (
	"bytes"
	"cmp"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// header is that of an answer inside a transaction: it has a revision only.
func header(revision int64) *pb.ResponseHeader { return &pb.ResponseHeader{Revision: revision} }

// readable reports whether a revision can be read now.
func (s *store) readable(revision, now int64) error {
	switch {
	case revision > now:
		return rpctypes.ErrGRPCFutureRev
	case revision > 0 && revision < s.compacted:
		return rpctypes.ErrGRPCCompacted
	}
	return nil
}

func (w *write) rangeOf(r *pb.RangeRequest) (*pb.RangeResponse, error) {
	revision := r.Revision
	if err := w.readable(revision, w.now()); err != nil {
		return nil, err
	}
	if revision <= 0 {
		revision = w.now()
	}
	kvs := w.at(span{string(r.Key), string(r.RangeEnd)}, revision)
	resp := &pb.RangeResponse{Header: header(w.now()), Count: int64(len(kvs))}
	if r.CountOnly {
		return resp, nil
	}
	kvs = slices.DeleteFunc(kvs, func(kv *mvccpb.KeyValue) bool {
		return outside(kv.ModRevision, r.MinModRevision, r.MaxModRevision) || outside(kv.CreateRevision, r.MinCreateRevision, r.MaxCreateRevision)
	})
	bounded := r.MinModRevision != 0 || r.MaxModRevision != 0 || r.MinCreateRevision != 0 || r.MaxCreateRevision != 0
	if r.SortOrder == pb.RangeRequest_NONE && !bounded && r.Limit > 0 && int64(len(kvs)) > r.Limit+1 {
		kvs = kvs[:r.Limit+1] // etcd reads no more before it sorts
	}
	order(kvs, r.SortTarget, r.SortOrder)
	if r.Limit > 0 && int64(len(kvs)) > r.Limit {
		kvs, resp.More = kvs[:r.Limit], true
	}
	if r.KeysOnly {
		for i, kv := range kvs {
			// Without the lease, as etcd 3.7 answers.
			kvs[i] = &mvccpb.KeyValue{Key: kv.Key, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Version: kv.Version}
		}
	}
	resp.Kvs = kvs
	return resp, nil
}

func outside(revision, least, most int64) bool {
	return least != 0 && revision < least || most != 0 && revision > most
}

// order sorts what is sorted by key already.
func order(kvs []*mvccpb.KeyValue, by pb.RangeRequest_SortTarget, way pb.RangeRequest_SortOrder) {
	if way == pb.RangeRequest_NONE && by == pb.RangeRequest_KEY {
		return
	}
	slices.SortStableFunc(kvs, func(a, b *mvccpb.KeyValue) int {
		if way == pb.RangeRequest_DESCEND {
			a, b = b, a
		}
		switch by {
		case pb.RangeRequest_VERSION:
			return cmp.Compare(a.Version, b.Version)
		case pb.RangeRequest_CREATE:
			return cmp.Compare(a.CreateRevision, b.CreateRevision)
		case pb.RangeRequest_MOD:
			return cmp.Compare(a.ModRevision, b.ModRevision)
		case pb.RangeRequest_VALUE:
			return bytes.Compare(a.Value, b.Value)
		}
		return bytes.Compare(a.Key, b.Key)
	})
}

func (w *write) putOf(r *pb.PutRequest) *pb.PutResponse {
	prev := w.get(string(r.Key), w.now())
	value, lease := copyBytes(r.Value), r.Lease
	if (r.IgnoreValue || r.IgnoreLease) && prev == nil {
		panic("etcdfake: a transaction is not imitated in which a put keeps the value or lease of a key that is not there when it comes")
	}
	if r.IgnoreValue {
		value = prev.Value
	}
	if r.IgnoreLease {
		lease = prev.Lease
	}
	w.put(string(r.Key), value, lease)
	resp := &pb.PutResponse{Header: header(w.now())}
	if r.PrevKv {
		resp.PrevKv = prev
	}
	return resp
}

func (w *write) deleteOf(r *pb.DeleteRangeRequest) *pb.DeleteRangeResponse {
	kvs := w.at(span{string(r.Key), string(r.RangeEnd)}, w.now())
	for _, kv := range kvs {
		w.delete(string(kv.Key))
	}
	resp := &pb.DeleteRangeResponse{Header: header(w.now()), Deleted: int64(len(kvs))}
	if r.PrevKv {
		resp.PrevKvs = kvs
	}
	return resp
}

// plan is a transaction whose conditions have been looked at. All of them, those of
// nested ones too, are about the state before it: that is etcd's way.
type plan struct {
	succeeded bool
	ops       []*pb.RequestOp
	nested    map[int]*plan // by index in ops
}

func (w *write) plan(r *pb.TxnRequest) *plan {
	p := &plan{succeeded: true, ops: r.Success, nested: map[int]*plan{}}
	for _, c := range r.Compare {
		p.succeeded = p.succeeded && w.holds(c)
	}
	if !p.succeeded {
		p.ops = r.Failure
	}
	for i, op := range p.ops {
		if t := op.GetRequestTxn(); t != nil {
			p.nested[i] = w.plan(t)
		}
	}
	return p
}

func (w *write) holds(c *pb.Compare) bool {
	kvs := w.at(span{string(c.Key), string(c.RangeEnd)}, w.revision)
	if len(kvs) == 0 {
		// A value that does not exist equals nothing and differs from nothing.
		return c.Target != pb.Compare_VALUE && compared(c, &mvccpb.KeyValue{})
	}
	return !slices.ContainsFunc(kvs, func(kv *mvccpb.KeyValue) bool { return !compared(c, kv) })
}

func compared(c *pb.Compare, kv *mvccpb.KeyValue) bool {
	var result int
	switch c.Target {
	case pb.Compare_VALUE:
		result = bytes.Compare(kv.Value, c.GetValue())
	case pb.Compare_CREATE:
		result = cmp.Compare(kv.CreateRevision, c.GetCreateRevision())
	case pb.Compare_MOD:
		result = cmp.Compare(kv.ModRevision, c.GetModRevision())
	case pb.Compare_VERSION:
		result = cmp.Compare(kv.Version, c.GetVersion())
	case pb.Compare_LEASE:
		result = cmp.Compare(kv.Lease, c.GetLease())
	}
	switch c.Result {
	case pb.Compare_EQUAL:
		return result == 0
	case pb.Compare_NOT_EQUAL:
		return result != 0
	case pb.Compare_GREATER:
		return result > 0
	}
	return result < 0
}

// check looks for what would fail a planned transaction, before anything of it is
// done.
func (w *write) check(p *plan, leases map[int64]*lease) error {
	for i, op := range p.ops {
		var err error
		if r := op.GetRequestRange(); r != nil {
			err = w.readable(r.Revision, w.revision)
		} else if r := op.GetRequestPut(); r != nil {
			err = w.checkPut(r, leases)
		} else if n := p.nested[i]; n != nil {
			err = w.check(n, leases)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *write) checkPut(r *pb.PutRequest, leases map[int64]*lease) error {
	if r.Lease != 0 && leases[r.Lease] == nil {
		return rpctypes.ErrGRPCLeaseNotFound
	}
	if (r.IgnoreValue || r.IgnoreLease) && w.get(string(r.Key), w.revision) == nil {
		return rpctypes.ErrGRPCKeyNotFound
	}
	return nil
}

func (w *write) run(p *plan) (*pb.TxnResponse, error) {
	resp := &pb.TxnResponse{Succeeded: p.succeeded, Header: &pb.ResponseHeader{}}
	for i, op := range p.ops {
		out := &pb.ResponseOp{}
		if r := op.GetRequestRange(); r != nil {
			read, err := w.rangeOf(r)
			if err != nil {
				return nil, err
			}
			out.Response = &pb.ResponseOp_ResponseRange{ResponseRange: read}
		} else if r := op.GetRequestPut(); r != nil {
			out.Response = &pb.ResponseOp_ResponsePut{ResponsePut: w.putOf(r)}
		} else if r := op.GetRequestDeleteRange(); r != nil {
			out.Response = &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: w.deleteOf(r)}
		} else if n := p.nested[i]; n != nil {
			inner, err := w.run(n)
			if err != nil {
				return nil, err
			}
			out.Response = &pb.ResponseOp_ResponseTxn{ResponseTxn: inner}
		}
		resp.Responses = append(resp.Responses, out)
	}
	return resp, nil
}
