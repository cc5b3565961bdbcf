package etcdfake_test

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"pgregory.net/rapid"
)

var (
	someKey   = rapid.SampledFrom([]string{"a", "ab", "abc", "b", "ba", "c"})
	someValue = rapid.SampledFrom([]string{"", "1", "2", "33"})
	someLease = rapid.SampledFrom([]int64{0, 0, 1, 1, 2, 3})
	// someEnd is mostly none, an open one, and at times one before the key.
	someEnd = rapid.SampledFrom([]string{"", "", "b", "bb", "d", "\x00"})
	often   = rapid.SampledFrom([]bool{true, true, true, false})
	seldom  = rapid.SampledFrom([]bool{false, false, false, true})
)

// moment is what a draw of revisions goes by.
type moment struct{ now, compacted int64 }

// around draws a revision near the present one or the last compaction, or none.
func around(m moment) *rapid.Generator[int64] {
	return rapid.Custom(func(t *rapid.T) int64 {
		if often.Draw(t, "none") {
			return 0
		}
		if rapid.Bool().Draw(t, "of the compaction") {
			return max(1, m.compacted+rapid.Int64Range(-1, 1).Draw(t, "revision"))
		}
		return max(1, m.now+rapid.Int64Range(-12, 2).Draw(t, "revision"))
	})
}

// request draws a request; revisions in it are around the present one. rapid prefers
// what comes first, the more the longer the list is: so lists are short.
func request(m moment) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		return rapid.SampledFrom([]func(*rapid.T, moment) any{change, anyTxn, ofLeases, look}).Draw(t, "kind")(t, m)
	})
}

func change(t *rapid.T, m moment) any {
	if often.Draw(t, "put") {
		return put(t)
	}
	return del(t)
}

func anyTxn(t *rapid.T, m moment) any { return txn(t, m, 2) }

func ofLeases(t *rapid.T, m moment) any {
	id := rapid.SampledFrom(leases).Draw(t, "lease")
	switch rapid.IntRange(0, 4).Draw(t, "what") {
	case 0:
		return &pb.LeaseRevokeRequest{ID: id}
	case 1:
		return &pb.LeaseGrantRequest{ID: id, TTL: rapid.Int64Range(100, 300).Draw(t, "TTL")}
	case 2:
		return &pb.LeaseTimeToLiveRequest{ID: id, Keys: true}
	case 3:
		return &pb.LeaseKeepAliveRequest{ID: id}
	}
	return &pb.LeaseLeasesRequest{}
}

func look(t *rapid.T, m moment) any {
	switch rapid.IntRange(0, 2).Draw(t, "how") {
	case 0:
		return rangeOf(t, m)
	case 1:
		return &pb.CompactionRequest{Revision: m.now - rapid.Int64Range(-1, 4).Draw(t, "behind")}
	}
	w := &pb.WatchCreateRequest{
		Key: []byte(someKey.Draw(t, "key")), RangeEnd: []byte(someEnd.Draw(t, "end")),
		StartRevision: around(m).Draw(t, "from"), PrevKv: rapid.Bool().Draw(t, "previous"),
	}
	if seldom.Draw(t, "filtered") {
		w.Filters = append(w.Filters, rapid.SampledFrom([]pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT, pb.WatchCreateRequest_NODELETE}).Draw(t, "filter"))
	}
	return w
}

func put(t *rapid.T) *pb.PutRequest {
	r := &pb.PutRequest{
		Key: []byte(someKey.Draw(t, "key")), Value: []byte(someValue.Draw(t, "value")),
		Lease: someLease.Draw(t, "lease"), PrevKv: seldom.Draw(t, "previous"),
	}
	if seldom.Draw(t, "keep value") {
		// If the lease is unknown as well, etcd 3.6 and 3.7 do not agree which
		// of both they refuse.
		r.Value, r.IgnoreValue, r.Lease = nil, true, 0
	}
	if seldom.Draw(t, "keep lease") {
		r.Lease, r.IgnoreLease = 0, true
	}
	return r
}

func del(t *rapid.T) *pb.DeleteRangeRequest {
	return &pb.DeleteRangeRequest{Key: []byte(someKey.Draw(t, "key")), RangeEnd: []byte(someEnd.Draw(t, "end")), PrevKv: rapid.Bool().Draw(t, "previous")}
}

func rangeOf(t *rapid.T, m moment) *pb.RangeRequest {
	r := &pb.RangeRequest{
		Key: []byte(someKey.Draw(t, "key")), RangeEnd: []byte(someEnd.Draw(t, "end")), Revision: around(m).Draw(t, "at"),
		Limit:     rapid.SampledFrom([]int64{0, 0, 1, 2, 3}).Draw(t, "limit"),
		CountOnly: seldom.Draw(t, "count"), KeysOnly: seldom.Draw(t, "keys"), Serializable: seldom.Draw(t, "serializable"),
	}
	if seldom.Draw(t, "sorted") {
		r.SortOrder = pb.RangeRequest_SortOrder(rapid.IntRange(0, 2).Draw(t, "order"))
		r.SortTarget = pb.RangeRequest_SortTarget(rapid.IntRange(0, 4).Draw(t, "by"))
	}
	if seldom.Draw(t, "bounded") {
		r.MinModRevision, r.MaxModRevision = around(m).Draw(t, "least mod"), around(m).Draw(t, "most mod")
		r.MinCreateRevision, r.MaxCreateRevision = around(m).Draw(t, "least create"), around(m).Draw(t, "most create")
	}
	return r
}

func txn(t *rapid.T, m moment, depth int) *pb.TxnRequest {
	r := &pb.TxnRequest{}
	for range rapid.IntRange(0, 3).Draw(t, "compares") {
		r.Compare = append(r.Compare, compare(t, m))
	}
	ops := func(most int) (ops []*pb.RequestOp) {
		for range rapid.IntRange(0, most).Draw(t, "operations") {
			ops = append(ops, op(t, m, depth))
		}
		return ops
	}
	r.Success, r.Failure = ops(4), ops(2)
	return r
}

func op(t *rapid.T, m moment, depth int) *pb.RequestOp {
	switch n := rapid.IntRange(0, 3).Draw(t, "operation"); {
	case n == 0:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put(t)}}
	case n == 1 || depth == 0:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: rangeOf(t, m)}}
	case n == 2:
		d := del(t)
		if string(d.RangeEnd) == "\x00" {
			// Open ranges are drawn for deletions outside of transactions alone (docs/design/0006-fake-etcd.md).
			d.RangeEnd = nil
		}
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: d}}
	}
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: txn(t, m, depth-1)}}
}

func compare(t *rapid.T, m moment) *pb.Compare {
	c := &pb.Compare{
		Key: []byte(someKey.Draw(t, "key")), RangeEnd: []byte(someEnd.Draw(t, "end")),
		Result: pb.Compare_CompareResult(rapid.IntRange(0, 3).Draw(t, "is")),
	}
	switch rapid.IntRange(0, 4).Draw(t, "what") {
	case 0:
		c.Target, c.TargetUnion = pb.Compare_VERSION, &pb.Compare_Version{Version: rapid.Int64Range(0, 3).Draw(t, "version")}
	case 1:
		c.Target, c.TargetUnion = pb.Compare_CREATE, &pb.Compare_CreateRevision{CreateRevision: around(m).Draw(t, "create")}
	case 2:
		c.Target, c.TargetUnion = pb.Compare_MOD, &pb.Compare_ModRevision{ModRevision: around(m).Draw(t, "mod")}
	case 3:
		c.Target, c.TargetUnion = pb.Compare_VALUE, &pb.Compare_Value{Value: []byte(someValue.Draw(t, "value"))}
	default:
		c.Target, c.TargetUnion = pb.Compare_LEASE, &pb.Compare_Lease{Lease: someLease.Draw(t, "lease")}
	}
	return c
}

// shifted returns a request with all revisions but 0 greater by an offset. It does not
// change its argument.
func shifted(req any, offset int64) any {
	at := func(r int64) int64 {
		if r <= 0 {
			return r
		}
		return r + offset
	}
	switch r := req.(type) {
	case *pb.RangeRequest:
		return &pb.RangeRequest{
			Key: r.Key, RangeEnd: r.RangeEnd, Limit: r.Limit, Revision: at(r.Revision), SortOrder: r.SortOrder, SortTarget: r.SortTarget,
			Serializable: r.Serializable, KeysOnly: r.KeysOnly, CountOnly: r.CountOnly,
			MinModRevision: at(r.MinModRevision), MaxModRevision: at(r.MaxModRevision),
			MinCreateRevision: at(r.MinCreateRevision), MaxCreateRevision: at(r.MaxCreateRevision),
		}
	case *pb.CompactionRequest:
		return &pb.CompactionRequest{Revision: at(r.Revision)}
	case *pb.TxnRequest:
		out := &pb.TxnRequest{}
		for _, c := range r.Compare {
			s := &pb.Compare{Key: c.Key, RangeEnd: c.RangeEnd, Result: c.Result, Target: c.Target, TargetUnion: c.TargetUnion}
			switch c.Target {
			case pb.Compare_CREATE:
				s.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: at(c.GetCreateRevision())}
			case pb.Compare_MOD:
				s.TargetUnion = &pb.Compare_ModRevision{ModRevision: at(c.GetModRevision())}
			}
			out.Compare = append(out.Compare, s)
		}
		ops := func(ops []*pb.RequestOp) (out []*pb.RequestOp) {
			for _, op := range ops {
				if r := op.GetRequestRange(); r != nil {
					op = &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: shifted(r, offset).(*pb.RangeRequest)}}
				} else if r := op.GetRequestTxn(); r != nil {
					op = &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: shifted(r, offset).(*pb.TxnRequest)}}
				}
				out = append(out, op)
			}
			return out
		}
		out.Success, out.Failure = ops(r.Success), ops(r.Failure)
		return out
	}
	return req
}
