package commit

import (
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// bundle is the parts of a request that have the fence of their session in common, or a single
// part. The fence is compared once: to compare costs etcd a third of what it costs to put. If it was
// raised, all parts of the bundle fail, as each of them would alone.
type bundle struct {
	common []clientv3.Cmp // nil for a single part
	single *part
	parts  []*part
}

// common is a compare that parts of several callers may have: that of a fence.
type common struct {
	fence fenceAt
	cmp   clientv3.Cmp
}

// fenceAt is a presence key and the mod revision that it must have.
type fenceAt struct {
	key string
	mod int64
}

// conditions returns all conditions of a part.
func (p *part) conditions() []clientv3.Cmp {
	if p.common == nil {
		return p.cmps
	}
	return append(slices.Clip(p.cmps), p.common.cmp)
}

// bundles divides the parts of a request. A part that reads something if a condition is not met is
// in a bundle of its own.
func bundles(parts []*part) (all []bundle) {
	all = make([]bundle, 0, len(parts))
	byFence := map[fenceAt]int{}
	for _, p := range parts {
		if p.common == nil || len(p.otherwise) > 0 {
			all = append(all, bundle{single: p})
			continue
		}
		i, known := byFence[p.common.fence]
		if !known {
			i = len(all)
			byFence[p.common.fence], all = i, append(all, bundle{common: []clientv3.Cmp{p.common.cmp}})
		}
		all[i].parts = append(all[i].parts, p)
	}
	return all
}

// op is the bundle's part of the request.
func (b *bundle) op() clientv3.Op {
	if p := b.single; p != nil {
		return clientv3.OpTxn(p.conditions(), p.then, p.otherwise)
	}
	each := make([]clientv3.Op, len(b.parts))
	for i, p := range b.parts {
		each[i] = clientv3.OpTxn(p.cmps, p.then, nil)
	}
	return clientv3.OpTxn(b.common, each, nil)
}

// response is the response to part n, of the response to op.
func (b *bundle) response(r *etcdserverpb.TxnResponse, n int) *clientv3.TxnResponse {
	switch {
	case b.single != nil:
		return (*clientv3.TxnResponse)(r)
	case r.Succeeded:
		return (*clientv3.TxnResponse)(r.Responses[n].GetResponseTxn())
	}
	return &clientv3.TxnResponse{}
}
