package conformance

import (
	"context"
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

// wire is what lies between one client and etcd: it notes which leases were granted, and
// can do harm.
type wire struct {
	mu     sync.Mutex
	leases map[int64]struct{} // that were not revoked since
	lose   int                // the n-th Txn from now on is carried out, and its answer lost
	refuse bool               // no Txn is sent
	cut    bool               // nothing is sent
	struck int
	harmed chan struct{} // has one for a Txn that was struck
}

// What the store hears of a harm, and of a client that was closed under it.
var (
	errWire = status.Error(codes.Unavailable, "conformance: the network is made to fail here")
	errCut  = status.Error(codes.Canceled, "conformance: the process is dead")
)

func newWire() *wire {
	return &wire{leases: map[int64]struct{}{}, harmed: make(chan struct{}, 1)}
}

// dial returns a client behind this wire. The caller's configuration is not changed. etcd's
// client would tell standard error of each request that is made to fail here.
func (wi *wire) dial(cfg clientv3.Config) (*clientv3.Client, error) {
	cfg.DialOptions = append(slices.Clone(cfg.DialOptions), grpc.WithChainUnaryInterceptor(wi.unary))
	cfg.Endpoints = slices.Clone(cfg.Endpoints)
	if cfg.Logger == nil && cfg.LogConfig == nil {
		cfg.Logger = zap.NewNop()
	}
	return clientv3.New(cfg)
}

func (wi *wire) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if r, ok := req.(*pb.LeaseGrantRequest); ok && r.ID != 0 {
		wi.granted(r.ID) // it may be, whatever comes back
	}
	lose, err := wi.harm(strings.HasSuffix(method, "/Txn"))
	if err != nil {
		wi.strike()
		return err
	}
	err = invoke(ctx, method, req, reply, cc, opts...)
	switch r := reply.(type) {
	case *pb.LeaseGrantResponse:
		if err == nil {
			wi.granted(r.ID)
		}
	case *pb.LeaseRevokeResponse:
		if r, ok := req.(*pb.LeaseRevokeRequest); ok && err == nil {
			wi.mu.Lock()
			delete(wi.leases, r.ID)
			wi.mu.Unlock()
		}
	}
	if lose && err == nil {
		wi.strike()
		return errWire
	}
	return err
}

// harm tells what becomes of a request.
func (wi *wire) harm(txn bool) (lose bool, err error) {
	wi.mu.Lock()
	defer wi.mu.Unlock()
	if txn && wi.lose > 0 {
		wi.lose--
		lose = wi.lose == 0
	}
	switch {
	case wi.cut:
		return false, errCut
	case txn && wi.refuse:
		return false, errWire
	}
	return lose, nil
}

func (wi *wire) granted(id int64) {
	wi.mu.Lock()
	defer wi.mu.Unlock()
	wi.leases[id] = struct{}{}
}

func (wi *wire) strike() {
	wi.mu.Lock()
	defer wi.mu.Unlock()
	wi.struck++
	select {
	case wi.harmed <- struct{}{}:
	default:
	}
}

// loseAnswer has the answer of the n-th Txn from now on lost; 0 none.
func (wi *wire) loseAnswer(n int) {
	wi.mu.Lock()
	defer wi.mu.Unlock()
	wi.lose, wi.struck = n, 0
}

// refuseTxns has no Txn sent any more, or again.
func (wi *wire) refuseTxns(refuse bool) {
	wi.mu.Lock()
	defer wi.mu.Unlock()
	wi.refuse = refuse
}

// cutOff has nothing sent any more.
func (wi *wire) cutOff() {
	wi.mu.Lock()
	defer wi.mu.Unlock()
	wi.cut = true
}

func (wi *wire) strikes() int {
	wi.mu.Lock()
	defer wi.mu.Unlock()
	return wi.struck
}
