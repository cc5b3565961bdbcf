package concurrency_test

import (
	"context"
	"fmt"
	"log"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// An effect in the same etcd is safe by the guard, whatever clocks and pauses do.
// An effect elsewhere is safe if its target refuses old tokens.
func ExampleMutex() {
	ctx := context.Background()
	etcd, err := embedtest.New(ctx, nil) // in a program: clientv3.New
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	client := etcd.Client()
	sess, err := concurrency.NewSession(ctx, client, "billing", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer sess.Close(ctx)
	mu, err := concurrency.NewMutex(sess, "month-end")
	if err != nil {
		log.Fatal(err)
	}

	former, err := mu.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := former.Release(ctx); err != nil {
		log.Fatal(err)
	}
	err = mu.Do(ctx, func(ctx context.Context, p *concurrency.Permit) error {
		fmt.Println("token rises:", p.Token() > former.Token())
		for _, p := range []*concurrency.Permit{p, former} {
			resp, err := client.Txn(ctx).If(p.Guard()).Then(clientv3.OpPut("closed", "2026-10")).Commit()
			if err != nil {
				return err
			}
			fmt.Println("took effect:", resp.Succeeded)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// token rises: true
	// took effect: true
	// took effect: false
}
