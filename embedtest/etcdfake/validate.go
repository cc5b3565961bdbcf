package etcdfake

import (
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// maxOps is etcd's default bound for the operations of a transaction.
const maxOps = 128

// maxProposed is the most bytes of a request that goes to Raft, of etcd's default settings.
// etcd counts what it adds to it: an id, and the name of the request.
const maxProposed = 1_536*1024 - 18

// maxReceived is the most bytes of a message that a server takes, of etcd's default settings. etcd's client sends as many,
// by an option of its calls.
const maxReceived = 2 << 20

// proposed reports whether a request goes to Raft: reads do not.
func proposed(req any) bool {
	switch r := req.(type) {
	case *pb.RangeRequest, *pb.LeaseTimeToLiveRequest, *pb.LeaseLeasesRequest:
		return false
	case *pb.TxnRequest:
		return !allReads(r, func(*pb.RangeRequest) bool { return true })
	}
	return true
}

// local reports whether a member answers a request without the leader.
func local(req any) bool {
	switch r := req.(type) {
	case *pb.RangeRequest:
		return r.Serializable
	case *pb.TxnRequest:
		return allReads(r, func(read *pb.RangeRequest) bool { return read.Serializable })
	case *pb.LeaseLeasesRequest, *pb.WatchRequest:
		return true
	}
	return false
}

// allReads reports whether every operation of a transaction is a read that passes.
func allReads(r *pb.TxnRequest, passes func(*pb.RangeRequest) bool) bool {
	for _, op := range slices.Concat(r.Success, r.Failure) {
		if read := op.GetRequestRange(); read == nil || !passes(read) {
			return false
		}
	}
	return true
}

// tooLarge is what gRPC says of a message that is larger than its client sends or its server takes, else nil.
func tooLarge(size int, opts []grpc.CallOption) error {
	for _, o := range opts {
		if most, ok := o.(grpc.MaxSendMsgSizeCallOption); ok && size > most.MaxSendMsgSize {
			return status.Errorf(codes.ResourceExhausted, "trying to send message larger than max (%d vs. %d)", size, most.MaxSendMsgSize)
		}
	}
	if size > maxReceived {
		return status.Errorf(codes.ResourceExhausted, "grpc: received message larger than max (%d vs. %d)", size, maxReceived)
	}
	return nil
}

// valid looks at a request as etcd does before it goes to Raft: no state is asked.
func valid(req any) error {
	switch r := req.(type) {
	case *pb.RangeRequest:
		return validRange(r)
	case *pb.PutRequest:
		return validPut(r)
	case *pb.DeleteRangeRequest:
		return validKey(r.Key)
	case *pb.TxnRequest:
		if err := validTxn(r, maxOps); err != nil {
			return err
		}
		// etcd looks at both branches, since it does not know yet which it will be.
		if _, _, err := written(r.Success); err != nil {
			return err
		}
		_, _, err := written(r.Failure)
		return err
	}
	return nil
}

func validKey(key []byte) error {
	if len(key) == 0 {
		return rpctypes.ErrGRPCEmptyKey
	}
	return nil
}

func validRange(r *pb.RangeRequest) error {
	if err := validKey(r.Key); err != nil {
		return err
	}
	_, order := pb.RangeRequest_SortOrder_name[int32(r.SortOrder)]
	_, target := pb.RangeRequest_SortTarget_name[int32(r.SortTarget)]
	if !order || !target {
		return rpctypes.ErrGRPCInvalidSortOption
	}
	return nil
}

func validPut(r *pb.PutRequest) error {
	switch {
	case len(r.Key) == 0:
		return rpctypes.ErrGRPCEmptyKey
	case r.IgnoreValue && len(r.Value) > 0:
		return rpctypes.ErrGRPCValueProvided
	case r.IgnoreLease && r.Lease != 0:
		return rpctypes.ErrGRPCLeaseProvided
	}
	return nil
}

func validTxn(r *pb.TxnRequest, most int) error {
	n := max(len(r.Compare), len(r.Success), len(r.Failure))
	if n > most {
		return rpctypes.ErrGRPCTooManyOps
	}
	for _, c := range r.Compare {
		if err := validKey(c.Key); err != nil {
			return err
		}
	}
	for _, ops := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range ops {
			if err := validOp(op, most-n); err != nil {
				return err
			}
		}
	}
	return nil
}

func validOp(op *pb.RequestOp, most int) error {
	if r := op.GetRequestRange(); r != nil {
		return validRange(r)
	}
	if r := op.GetRequestPut(); r != nil {
		return validPut(r)
	}
	if r := op.GetRequestDeleteRange(); r != nil {
		return validKey(r.Key)
	}
	if r := op.GetRequestTxn(); r != nil {
		return validTxn(r, most)
	}
	return rpctypes.ErrGRPCKeyNotFound
}

// written returns what operations put and delete. No key may be put twice, or put
// and deleted; of the two branches of a nested transaction only one will be run.
func written(ops []*pb.RequestOp) (puts map[string]bool, deletes []span, err error) {
	puts = map[string]bool{}
	for _, op := range ops {
		if r := op.GetRequestDeleteRange(); r != nil {
			deletes = append(deletes, span{string(r.Key), string(r.RangeEnd)})
		}
	}
	for _, op := range ops {
		r := op.GetRequestTxn()
		if r == nil {
			continue
		}
		then, thenDeletes, err := written(r.Success)
		if err != nil {
			return nil, nil, err
		}
		otherwise, elseDeletes, err := written(r.Failure)
		if err != nil {
			return nil, nil, err
		}
		for key := range then {
			if puts[key] || covered(deletes, key) {
				return nil, nil, rpctypes.ErrGRPCDuplicateKey
			}
		}
		for key := range otherwise {
			if puts[key] || covered(deletes, key) {
				return nil, nil, rpctypes.ErrGRPCDuplicateKey
			}
		}
		for key := range then {
			puts[key] = true
		}
		for key := range otherwise {
			puts[key] = true
		}
		deletes = append(append(deletes, thenDeletes...), elseDeletes...)
	}
	for _, op := range ops {
		r := op.GetRequestPut()
		if r == nil {
			continue
		}
		if key := string(r.Key); puts[key] || covered(deletes, key) {
			return nil, nil, rpctypes.ErrGRPCDuplicateKey
		}
		puts[string(r.Key)] = true
	}
	return puts, deletes, nil
}

// covered reports whether one of the ranges holds a key. Of an open one etcd takes the
// end for a key here, so that it holds nothing.
func covered(spans []span, key string) bool {
	for _, s := range spans {
		if s.end != fromKey && s.holds(key) {
			return true
		}
	}
	return false
}
