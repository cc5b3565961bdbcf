package conformance

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// connection is the connection between one client and etcd. It records the leases that are
// asked for, and injects faults.
type connection struct {
	mu       sync.Mutex
	leases   map[int64]struct{} // asked for and not revoked
	lose     int                // countdown to the Txn whose response is lost
	refuse   bool               // no Txn is sent
	cut      bool               // nothing is sent
	hitCount int
	hit      chan struct{} // receives when a request has met a fault
}

// The errors of injected faults.
var (
	errFault = status.Error(codes.Unavailable, "conformance: injected network fault")
	errCut   = status.Error(codes.Canceled, "conformance: the process was killed")
)

func newConnection() *connection {
	return &connection{leases: map[int64]struct{}{}, hit: make(chan struct{}, 1)}
}

// dial returns a client with this connection. It does not change the caller's configuration.
// Without a logger of the caller it drops the client's log: etcd's client would log each injected
// fault.
func (c *connection) dial(cfg clientv3.Config) (*clientv3.Client, error) {
	cfg.DialOptions = append(slices.Clone(cfg.DialOptions), grpc.WithChainUnaryInterceptor(c.unary))
	cfg.Endpoints = slices.Clone(cfg.Endpoints)
	if cfg.Logger == nil && cfg.LogConfig == nil {
		cfg.Logger = zap.NewNop()
	}
	return clientv3.New(cfg)
}

func (c *connection) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if r, ok := req.(*pb.LeaseGrantRequest); ok {
		named := &pb.LeaseGrantRequest{TTL: r.TTL, ID: cmp.Or(r.ID, rand.Int64())}
		c.granted(named.ID) // even if no response comes
		req = named
	}
	lose, err := c.fault(strings.HasSuffix(method, "/Txn"))
	if err != nil {
		c.countHit()
		return err
	}
	err = invoke(ctx, method, req, reply, cc, opts...)
	if r, ok := req.(*pb.LeaseRevokeRequest); ok && err == nil {
		c.mu.Lock()
		delete(c.leases, r.ID)
		c.mu.Unlock()
	}
	if lose && err == nil {
		c.countHit()
		return errFault
	}
	return err
}

// fault returns the fault of the next request: its response is lost, or it fails with err.
func (c *connection) fault(txn bool) (lose bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if txn && c.lose > 0 {
		c.lose--
		lose = c.lose == 0
	}
	switch {
	case c.cut:
		return false, errCut
	case txn && c.refuse:
		return false, errFault
	}
	return lose, nil
}

func (c *connection) granted(id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leases[id] = struct{}{}
}

func (c *connection) countHit() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hitCount++
	select {
	case c.hit <- struct{}{}:
	default:
	}
}

// loseResponse loses the response of the n-th Txn from now on; 0 is none.
func (c *connection) loseResponse(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lose, c.hitCount = n, 0
}

// refuseTxns sets whether each Txn fails without being sent.
func (c *connection) refuseTxns(refuse bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = refuse
}

// cutAll makes each request fail without being sent.
func (c *connection) cutAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
}

func (c *connection) hits() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hitCount
}
