// First is the program of the README, whole: it needs an etcd at 127.0.0.1:2379.
//
//	go run ./examples/quickstart/first
//
// On that etcd it leaves one key, the limit.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency" // etcd has one too
)

func main() {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"127.0.0.1:2379"}, DialTimeout: 5 * time.Second, // yours
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := run(context.Background(), client); err != nil {
		log.Fatal(err)
	} // no client.Close: it can hang
}

func run(ctx context.Context, client *clientv3.Client) error {
	opening, cancel := context.WithTimeout(ctx, 5*time.Second) // if there is no etcd
	defer cancel()
	sess, err := concurrency.NewSession(opening, client, "payments", nil) // one per process
	if err != nil {
		return err
	}
	defer func() {
		closing, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer stop()
		_ = sess.Close(closing)
	}()
	sem, err := concurrency.NewSemaphore(sess, "charge", 10, nil) // 10 in the whole fleet
	if err != nil {
		return err
	}
	return sem.Do(ctx, func(ctx context.Context, p *concurrency.Permit) error {
		fmt.Println("charged under permit", p.Token()) // ctx ends if the permit is lost
		return nil
	})
}
