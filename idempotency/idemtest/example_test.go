package idemtest_test

import (
	"context"
	"fmt"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency/conformance"
	"github.com/etcdkit/etcdkit/idempotency/idemtest"
)

// Promises can be tested outside of a test: here two of them, by a program that runs before a
// cluster is put into service.
func ExampleStore() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	etcd, err := embedtest.New(ctx, nil) // here: your cluster
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	cluster := clientv3.Config{Endpoints: etcd.Endpoints()}
	for _, p := range conformance.Promises() {
		if p.Name != "OneExecution" && p.Name != "CrashTakeOver" {
			continue
		}
		if err := p.Check(ctx, cluster, idemtest.Store(idemtest.Options{}), nil); err != nil {
			log.Fatalf("%s: %v", p.Text, err)
		}
		fmt.Println(p.Text)
	}
	// Output:
	// of many calls at the same time, in several processes, one executes the request, and all return its result
	// after a crash one call takes over, as a later attempt with a greater token and the same child keys
}
