package lease

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// API is what a lease needs of etcd. It is small so that the protocol can be
// tested without a server. Errors are those of clientv3, so that callers can
// compare them with the ones of package rpctypes.
type API interface {
	// Grant asks for a lease with this ID and returns the TTL that etcd
	// gives, in seconds.
	Grant(ctx context.Context, id, seconds int64) (granted int64, err error)
	// Granted returns the TTL of an existing lease, or a value below 1 if there is none.
	Granted(ctx context.Context, id int64) (granted int64, err error)
	// Revoke ends a lease. It returns nil if the lease does not exist.
	Revoke(ctx context.Context, id int64) error
	// Renewals opens a stream of renewals. It lives until ctx ends.
	Renewals(ctx context.Context) (Stream, error)
	// Reconnect retries refused connections at once.
	Reconnect()
}

// Stream is a stream of renewals. etcd answers its requests in order. Send and
// Recv may be called at the same time, each by one goroutine.
type Stream interface {
	Send(id int64) error
	Recv() (id, seconds int64, err error)
}

// Etcd returns the API of a client. Calls go by raw, its lease service as it is,
// because clientv3's own neither takes a lease ID for a retried grant nor shows
// when it sends.
func Etcd(client *clientv3.Client, raw etcdserverpb.LeaseClient) API { return etcd{client, raw} }

type etcd struct {
	client *clientv3.Client
	raw    etcdserverpb.LeaseClient
}

func (e etcd) Grant(ctx context.Context, id, seconds int64) (int64, error) {
	ctx, cancel := commit.Call(ctx)
	defer cancel()
	resp, err := e.raw.LeaseGrant(ctx, &etcdserverpb.LeaseGrantRequest{ID: id, TTL: seconds})
	if err != nil {
		return 0, rpctypes.Error(err)
	}
	if resp.ID != id || resp.Header.GetClusterId() == 0 { // by kine the ID is the TTL, and no cluster is named
		return 0, commit.ErrNotEtcd
	}
	return resp.TTL, nil
}

func (e etcd) Granted(ctx context.Context, id int64) (int64, error) {
	ctx, cancel := commit.Call(ctx)
	defer cancel()
	resp, err := e.raw.LeaseTimeToLive(ctx, &etcdserverpb.LeaseTimeToLiveRequest{ID: id})
	if err != nil {
		return 0, rpctypes.Error(err)
	}
	if resp.TTL < 1 {
		return 0, nil
	}
	return resp.GrantedTTL, nil
}

func (e etcd) Revoke(ctx context.Context, id int64) error {
	ctx, cancel := commit.Call(ctx)
	defer cancel()
	_, err := e.raw.LeaseRevoke(ctx, &etcdserverpb.LeaseRevokeRequest{ID: id})
	if isNotFound(err) {
		return nil
	}
	return rpctypes.Error(err)
}

func (e etcd) Renewals(ctx context.Context) (Stream, error) {
	s, err := e.raw.LeaseKeepAlive(ctx)
	if err != nil {
		return nil, rpctypes.Error(err)
	}
	return stream{s}, nil
}

// Reconnect cuts gRPC's back-off short, which grows to two minutes and ignores the deadline
// of a lease.
func (e etcd) Reconnect() { e.client.ActiveConnection().ResetConnectBackoff() }

type stream struct {
	etcdserverpb.Lease_LeaseKeepAliveClient
}

func (s stream) Send(id int64) error {
	return s.Lease_LeaseKeepAliveClient.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: id})
}

func (s stream) Recv() (id, seconds int64, err error) {
	resp, err := s.Lease_LeaseKeepAliveClient.Recv()
	if err != nil {
		return 0, 0, rpctypes.Error(err)
	}
	return resp.ID, resp.TTL, nil
}
