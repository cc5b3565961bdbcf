// Package impostor has servers that speak etcd's API and are no etcd, as the product and its doctor meet them. They answer
// what the real ones were seen to answer; the real gRPC proxy is run by module integration.
package impostor

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// serve serves until the test ends, and returns the address.
func serve(t testing.TB, s *grpc.Server) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(lis)
	}()
	t.Cleanup(func() { s.Stop(); <-ended })
	return lis.Addr().String()
}

// Kine starts a server that answers as kine 0.17.5 does: no header names a cluster or a member, a lease has its TTL as its
// ID, and a Txn of another shape than those of Kubernetes is refused.
func Kine(t testing.TB) string {
	s := grpc.NewServer()
	pb.RegisterKVServer(s, &kineKV{})
	pb.RegisterLeaseServer(s, &kineLease{})
	pb.RegisterClusterServer(s, &kineCluster{})
	pb.RegisterMaintenanceServer(s, &kineMaintenance{})
	return serve(t, s)
}

type kineKV struct{ pb.UnimplementedKVServer }

func (*kineKV) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: 7}}, nil
}

func (*kineKV) Txn(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error) {
	return nil, status.Error(codes.InvalidArgument, "unsupported transaction")
}

type kineLease struct{ pb.UnimplementedLeaseServer }

func (*kineLease) LeaseGrant(_ context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	return &pb.LeaseGrantResponse{Header: &pb.ResponseHeader{}, ID: r.TTL, TTL: r.TTL}, nil
}

type kineCluster struct{ pb.UnimplementedClusterServer }

func (*kineCluster) MemberList(context.Context, *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	return &pb.MemberListResponse{Header: &pb.ResponseHeader{}, Members: []*pb.Member{{Name: "kine"}}}, nil
}

type kineMaintenance struct {
	pb.UnimplementedMaintenanceServer
}

func (*kineMaintenance) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{Header: &pb.ResponseHeader{}, Version: "3.6.11"}, nil
}

// Proxy starts a server that passes every call on to one of etcd's, and lists as the only member itself, without an ID
// or a header, as etcd's gRPC proxy does.
func Proxy(t testing.TB, etcd string) string {
	return forward(t, etcd, func(s *grpc.Server) { pb.RegisterClusterServer(s, &proxyCluster{}) })
}

// Forwarder is Proxy, but changes no answer: a balancer of connections or of calls.
func Forwarder(t testing.TB, etcd string) string { return forward(t, etcd, func(*grpc.Server) {}) }

func forward(t testing.TB, etcd string, own func(*grpc.Server)) string {
	t.Helper()
	conn, err := grpc.NewClient(etcd, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s := grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.UnknownServiceHandler(func(_ any, in grpc.ServerStream) error { return pass(conn, in) }))
	own(s)
	return serve(t, s)
}

type proxyCluster struct{ pb.UnimplementedClusterServer }

func (*proxyCluster) MemberList(context.Context, *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	return &pb.MemberListResponse{Members: []*pb.Member{{Name: "proxy", ClientURLs: []string{"127.0.0.1:23790"}}}}, nil
}

// onward returns the ctx of a call with the metadata of its request, for the one that it is passed on by.
func onward(ctx context.Context) context.Context {
	md, _ := metadata.FromIncomingContext(ctx)
	return metadata.NewOutgoingContext(ctx, md)
}

// pass passes a call on, message by message, in both directions.
func pass(conn *grpc.ClientConn, in grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(in)
	out, err := conn.NewStream(onward(in.Context()), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, grpc.ForceCodec(raw{}))
	if err != nil {
		return err
	}
	go func() {
		for {
			var m frame
			if in.RecvMsg(&m) != nil || out.SendMsg(&m) != nil {
				_ = out.CloseSend()
				return
			}
		}
	}()
	for {
		var m frame
		switch err := out.RecvMsg(&m); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := in.SendMsg(&m); err != nil {
			return err
		}
	}
}

// Changed starts a server that passes every call on to one of etcd's, and changes the answers to Txns, if change is not nil.
func Changed(t testing.TB, etcd string, change func(*pb.TxnResponse)) string {
	t.Helper()
	conn, err := grpc.NewClient(etcd, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	kv := &changedKV{etcd: pb.NewKVClient(conn), change: change}
	return forward(t, etcd, func(s *grpc.Server) { pb.RegisterKVServer(s, kv) })
}

// WrongTxns are answers to a Txn that are not etcd's, each by what it shows.
func WrongTxns() map[string]func(*pb.TxnResponse) {
	read := func(r *pb.TxnResponse) *mvccpb.KeyValue {
		return r.Responses[1].GetResponseTxn().Responses[0].GetResponseRange().Kvs[0]
	}
	return map[string]func(*pb.TxnResponse){
		"no Txn within":           func(r *pb.TxnResponse) { r.Responses = r.Responses[:1] },
		"its condition fails":     func(r *pb.TxnResponse) { r.Responses[1].GetResponseTxn().Succeeded = false },
		"it does not see the put": func(r *pb.TxnResponse) { r.Responses[1].GetResponseTxn().Responses[0].GetResponseRange().Kvs = nil },
		"no lease":                func(r *pb.TxnResponse) { read(r).Lease = 0 },
		"another revision":        func(r *pb.TxnResponse) { read(r).ModRevision++ },
	}
}

type changedKV struct {
	pb.UnimplementedKVServer
	etcd   pb.KVClient
	change func(*pb.TxnResponse)
}

func (c *changedKV) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	return c.etcd.Range(onward(ctx), r)
}

func (c *changedKV) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	resp, err := c.etcd.Txn(onward(ctx), r)
	if err == nil && c.change != nil && resp.Succeeded && len(resp.Responses) == 2 && resp.Responses[1].GetResponseTxn() != nil {
		c.change(resp)
	}
	return resp, err
}
