package members

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// door is one service of etcd, by the caller's client or, as long as a member is left out, by a connection
// to another.
type door[C any] struct {
	calls *calls
	usual C
	own   func(*conn) C
}

func (d door[C]) by(c *call) C {
	if c.on != nil {
		return d.own(c.on)
	}
	return d.usual
}

// answer is what all of etcd's answers have.
type answer interface {
	GetHeader() *etcdserverpb.ResponseHeader
}

// send sends one request. If reads is set, it changes nothing, and is repeated if it ends unanswered.
func send[C, Req any, Resp answer](d door[C], parent context.Context, method func(C, context.Context, Req, ...grpc.CallOption) (Resp, error), in Req, opts []grpc.CallOption, reads bool) (Resp, error) {
	for {
		ctx, c := d.calls.begin(parent, false)
		resp, err := method(d.by(c), ctx, in, opts...)
		err = d.calls.end(ctx, c, err)
		if err == nil {
			d.calls.saw(resp.GetHeader())
		}
		if !reads || !Unanswered(err) || parent.Err() != nil {
			return resp, err
		}
	}
}

// open opens a stream.
func open[C any, S grpc.ClientStream](d door[C], ctx context.Context, method func(C, context.Context, ...grpc.CallOption) (S, error), opts []grpc.CallOption) (S, *stream, error) {
	ctx, c := d.calls.begin(ctx, true)
	s, err := method(d.by(c), ctx, opts...)
	if err != nil {
		return s, nil, d.calls.end(ctx, c, err)
	}
	return s, d.calls.hold(ctx, c), nil
}

// kvDoor sends reads and writes. Compactions are the program's own.
type kvDoor struct {
	etcdserverpb.KVClient
	door door[etcdserverpb.KVClient]
}

func (s *calls) kv(usual etcdserverpb.KVClient) kvDoor {
	return kvDoor{usual, door[etcdserverpb.KVClient]{s, usual, func(c *conn) etcdserverpb.KVClient { return c.kv }}}
}

func (d kvDoor) Range(ctx context.Context, in *etcdserverpb.RangeRequest, opts ...grpc.CallOption) (*etcdserverpb.RangeResponse, error) {
	return send(d.door, ctx, etcdserverpb.KVClient.Range, in, opts, true)
}

func (d kvDoor) Put(ctx context.Context, in *etcdserverpb.PutRequest, opts ...grpc.CallOption) (*etcdserverpb.PutResponse, error) {
	return send(d.door, ctx, etcdserverpb.KVClient.Put, in, opts, false)
}

func (d kvDoor) DeleteRange(ctx context.Context, in *etcdserverpb.DeleteRangeRequest, opts ...grpc.CallOption) (*etcdserverpb.DeleteRangeResponse, error) {
	return send(d.door, ctx, etcdserverpb.KVClient.DeleteRange, in, opts, false)
}

func (d kvDoor) Txn(ctx context.Context, in *etcdserverpb.TxnRequest, opts ...grpc.CallOption) (*etcdserverpb.TxnResponse, error) {
	return send(d.door, ctx, etcdserverpb.KVClient.Txn, in, opts, false)
}

// leaseDoor sends the calls of leases, and opens streams of renewals.
type leaseDoor struct {
	etcdserverpb.LeaseClient
	door door[etcdserverpb.LeaseClient]
}

func (s *calls) lease(usual etcdserverpb.LeaseClient) leaseDoor {
	return leaseDoor{usual, door[etcdserverpb.LeaseClient]{s, usual, func(c *conn) etcdserverpb.LeaseClient { return c.lease }}}
}

func (d leaseDoor) LeaseGrant(ctx context.Context, in *etcdserverpb.LeaseGrantRequest, opts ...grpc.CallOption) (*etcdserverpb.LeaseGrantResponse, error) {
	return send(d.door, ctx, etcdserverpb.LeaseClient.LeaseGrant, in, opts, false)
}

func (d leaseDoor) LeaseRevoke(ctx context.Context, in *etcdserverpb.LeaseRevokeRequest, opts ...grpc.CallOption) (*etcdserverpb.LeaseRevokeResponse, error) {
	return send(d.door, ctx, etcdserverpb.LeaseClient.LeaseRevoke, in, opts, false)
}

func (d leaseDoor) LeaseTimeToLive(ctx context.Context, in *etcdserverpb.LeaseTimeToLiveRequest, opts ...grpc.CallOption) (*etcdserverpb.LeaseTimeToLiveResponse, error) {
	return send(d.door, ctx, etcdserverpb.LeaseClient.LeaseTimeToLive, in, opts, true)
}

func (d leaseDoor) LeaseKeepAlive(ctx context.Context, opts ...grpc.CallOption) (etcdserverpb.Lease_LeaseKeepAliveClient, error) {
	s, held, err := open(d.door, ctx, etcdserverpb.LeaseClient.LeaseKeepAlive, opts)
	if err != nil {
		return nil, err
	}
	return renewals{s, held}, nil
}

// watchDoor opens streams of watches. etcd's client opens another when one ends, from the revision after the
// last one that it has received.
type watchDoor struct {
	etcdserverpb.WatchClient
	door door[etcdserverpb.WatchClient]
}

func (s *calls) watch(usual etcdserverpb.WatchClient) watchDoor {
	return watchDoor{usual, door[etcdserverpb.WatchClient]{s, usual, func(c *conn) etcdserverpb.WatchClient { return c.watch }}}
}

func (d watchDoor) Watch(ctx context.Context, opts ...grpc.CallOption) (etcdserverpb.Watch_WatchClient, error) {
	s, held, err := open(d.door, ctx, etcdserverpb.WatchClient.Watch, opts)
	if err != nil {
		return nil, err
	}
	w := &watches{Watch_WatchClient: s, stream: held, pause: silent}
	d.door.calls.silence.add(w)
	context.AfterFunc(held.ctx, func() { d.door.calls.silence.remove(w) })
	return w, nil
}
