package etcdfake

import (
	"reflect"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that copies
)

// clone copies a message, and returns its size on the wire.
func clone(msg any) (c any, size int) {
	c = reflect.New(reflect.TypeOf(msg).Elem()).Interface()
	return c, copyInto(c, msg)
}

// generated are messages of etcd's API that have code of their own for it, as those of etcd 3.6.
type generated interface {
	Reset()
	Marshal() ([]byte, error)
	Unmarshal(data []byte) error
}

// copyInto copies a message, of whose memory the copy shares nothing: by its own code, or by gRPC's codec, which knows the
// messages of every generation of etcd's API, and takes nearly twice the time. It returns the message's size on the wire.
func copyInto(dst, src any) (size int) {
	from, ok := src.(generated)
	to, both := dst.(generated)
	var err error
	if ok && both {
		size, err = byOwnCode(to, from)
	} else {
		size, err = byCodec(dst, src)
	}
	if err != nil {
		panic("etcdfake: copy a message of etcd's API: " + err.Error())
	}
	return size
}

func byOwnCode(dst, src generated) (size int, err error) {
	dst.Reset()
	data, err := src.Marshal()
	if err != nil {
		return 0, err
	}
	return len(data), dst.Unmarshal(data)
}

func byCodec(dst, src any) (size int, err error) {
	codec := encoding.GetCodecV2("proto")
	data, err := codec.Marshal(src)
	if err != nil {
		return 0, err
	}
	defer data.Free()
	return data.Len(), codec.Unmarshal(data, dst)
}

// sized are messages that count their bytes on the wire without writing them, as those of etcd 3.6.
type sized interface{ Size() int }

func sizeOf(msg any) int {
	if m, ok := msg.(sized); ok {
		return m.Size()
	}
	data, err := encoding.GetCodecV2("proto").Marshal(msg)
	if err != nil {
		panic("etcdfake: the size of a message of etcd's API: " + err.Error())
	}
	defer data.Free()
	return data.Len()
}

// copyAnswer copies an answer, of whose memory the copy shares nothing. Those there are most of are copied field by field,
// which takes a fraction of the time.
func copyAnswer(dst, src any, of *Server) {
	if of.real != nil || !byHand(dst, src) {
		copyInto(dst, src)
	}
}

func byHand(dst, src any) bool {
	switch from := src.(type) {
	case *pb.RangeResponse:
		if to, ok := dst.(*pb.RangeResponse); ok {
			copyRange(to, from)
			return true
		}
	case *pb.TxnResponse:
		if to, ok := dst.(*pb.TxnResponse); ok {
			copyTxn(to, from)
			return true
		}
	case *pb.WatchResponse:
		if to, ok := dst.(*pb.WatchResponse); ok {
			copyWatch(to, from)
			return true
		}
	}
	return false
}

func copyRange(to, from *pb.RangeResponse) {
	to.Reset()
	to.Header, to.Kvs, to.More, to.Count = copyHeader(from.Header), copyKVs(from.Kvs), from.More, from.Count
}

func copyTxn(to, from *pb.TxnResponse) {
	to.Reset()
	to.Header, to.Succeeded = copyHeader(from.Header), from.Succeeded
	for _, op := range from.Responses {
		to.Responses = append(to.Responses, copyOp(op))
	}
}

func copyOp(from *pb.ResponseOp) *pb.ResponseOp {
	to := &pb.ResponseOp{}
	switch op := from.Response.(type) {
	case *pb.ResponseOp_ResponseRange:
		c := &pb.RangeResponse{}
		copyRange(c, op.ResponseRange)
		to.Response = &pb.ResponseOp_ResponseRange{ResponseRange: c}
	case *pb.ResponseOp_ResponsePut:
		p := op.ResponsePut
		to.Response = &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{Header: copyHeader(p.Header), PrevKv: copyKV(p.PrevKv)}}
	case *pb.ResponseOp_ResponseDeleteRange:
		d := op.ResponseDeleteRange
		to.Response = &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: &pb.DeleteRangeResponse{
			Header: copyHeader(d.Header), Deleted: d.Deleted, PrevKvs: copyKVs(d.PrevKvs),
		}}
	case *pb.ResponseOp_ResponseTxn:
		c := &pb.TxnResponse{}
		copyTxn(c, op.ResponseTxn)
		to.Response = &pb.ResponseOp_ResponseTxn{ResponseTxn: c}
	}
	return to
}

func copyWatch(to, from *pb.WatchResponse) {
	to.Reset()
	to.Header, to.WatchId, to.Created, to.Canceled = copyHeader(from.Header), from.WatchId, from.Created, from.Canceled
	to.CompactRevision, to.CancelReason, to.Fragment = from.CompactRevision, from.CancelReason, from.Fragment
	for _, e := range from.Events {
		to.Events = append(to.Events, &mvccpb.Event{Type: e.Type, Kv: copyKV(e.Kv), PrevKv: copyKV(e.PrevKv)})
	}
}

func copyHeader(h *pb.ResponseHeader) *pb.ResponseHeader {
	if h == nil {
		return nil
	}
	return &pb.ResponseHeader{ClusterId: h.ClusterId, MemberId: h.MemberId, Revision: h.Revision, RaftTerm: h.RaftTerm}
}

func copyKVs(from []*mvccpb.KeyValue) (to []*mvccpb.KeyValue) {
	if len(from) > 0 {
		to = make([]*mvccpb.KeyValue, len(from))
	}
	for i, kv := range from {
		to[i] = copyKV(kv)
	}
	return to
}

func copyKV(kv *mvccpb.KeyValue) *mvccpb.KeyValue {
	if kv == nil {
		return nil
	}
	return &mvccpb.KeyValue{
		Key: copyBytes(kv.Key), Value: copyBytes(kv.Value), Lease: kv.Lease,
		CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Version: kv.Version,
	}
}

// copyBytes returns nil for no bytes, as what comes by the wire.
func copyBytes(b []byte) []byte { return append([]byte(nil), b...) }
