package idemgrpc_test

import (
	"context"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
)

// A server whose handlers run once for each tenant, method and key. Duplicates wait for up to ten
// seconds. Authentication is chained first; streams of methods that need a key are refused.
func ExampleUnaryServerInterceptor() {
	var (
		etcd         *clientv3.Client
		authenticate grpc.UnaryServerInterceptor                  // yours: sets the tenant in the context
		tenant       = func(context.Context) string { return "" } // yours: returns it
	)
	sess, err := concurrency.NewSession(context.Background(), etcd, "shop", nil)
	if err != nil {
		log.Fatal(err)
	}
	store, err := idempotency.NewStore(sess, "payments", nil)
	if err != nil {
		log.Fatal(err)
	}
	opts := &idemgrpc.Options{Scope: tenant, Wait: 10 * time.Second}
	unary, err := idemgrpc.UnaryServerInterceptor(store, opts)
	if err != nil {
		log.Fatal(err)
	}
	stream, err := idemgrpc.StreamServerInterceptor(store, opts)
	if err != nil {
		log.Fatal(err)
	}
	srv := grpc.NewServer(grpc.ChainUnaryInterceptor(authenticate, unary), grpc.ChainStreamInterceptor(stream))
	_ = srv // register your services, and serve
}
