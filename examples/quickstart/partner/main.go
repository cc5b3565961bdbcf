// Partner calls a partner's API, which bears 8 requests at a time and 50 in any second, from a service that gets 40 at
// once: no more are sent, by however many processes. 4 calls of the fleet wait, for 2 s at most; all others are
// refused at once.
//
//	go run ./examples/quickstart/partner
//	go run ./examples/quickstart/partner -endpoints 127.0.0.1:2379 -url http://127.0.0.1:9000
package main

import (
	"context"
	"flag"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/examples/program"
)

var url = flag.String("url", "", "URL of the partner (default: one in this process)")

func main() { program.Main("quickstart", run) }

func run(ctx context.Context, client *clientv3.Client) error {
	opening, cancel := context.WithTimeout(ctx, 5*time.Second) // without a deadline, NewSession waits for etcd
	defer cancel()
	sess, err := concurrency.NewSession(opening, client, "quickstart", &concurrency.SessionOptions{Hooks: program.Hooks(ctx)}) // one per process
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second) // less than the supervisor allows
		defer cancel()
		if err := sess.Close(closing); err != nil { // waits for the calls in progress
			log.Print(err)
		}
	}()
	partner, err := limited(sess)
	if err != nil {
		return err
	}
	return callers(ctx, partner)
}
