package embedtest_test

import (
	"context"
	"fmt"
	"log"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
)

// A main program or an example has no testing.TB.
func ExampleNew() {
	ctx := context.Background()
	c, err := embedtest.New(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	if _, err := c.Client().Put(ctx, "greeting", "hello"); err != nil {
		log.Fatal(err)
	}
	resp, err := c.Client().Get(ctx, "greeting")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", resp.Kvs[0].Value)
	// Output: hello
}

// etcd applies the request, but the caller gets an error. Every retry must handle this case.
func ExampleClient_Inject() {
	ctx := context.Background()
	c, err := embedtest.New(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	worker, err := c.Dial(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}

	worker.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropResponse})
	_, err = worker.Txn(ctx).Then(clientv3.OpPut("counter", "1")).Commit()
	fmt.Println("the worker saw an error:", err != nil)
	resp, err := c.Client().Get(ctx, "counter")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("keys written:", resp.Count)
	// Output:
	// the worker saw an error: true
	// keys written: 1
}
