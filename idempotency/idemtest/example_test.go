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

// Promises can be tried outside of a test: here two of them, by a program that is run before
// a cluster is taken into service.
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
	// of many calls at once, in several processes, one runs, and all return its result
	// after a crash one takes over, as a later attempt with a greater token and the same child keys
}
