// Partner calls a partner's API, which bears 8 requests at a time, from a service that gets 40: at most 8 are sent at a
// time, by however many processes, and a caller waits for 2 s at most.
//
//	go run ./examples/quickstart/partner
//	go run ./examples/quickstart/partner -endpoints 127.0.0.1:2379 -url http://127.0.0.1:9000
package main

import (
	"context"
	"flag"
	"log"
	"net/http"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/internal/examples/program"
)

var url = flag.String("url", "", "URL of the partner (default: one in this process)")

func main() { program.Main("quickstart", run) }

func run(ctx context.Context, client *clientv3.Client) error {
	opening, cancel := context.WithTimeout(ctx, 5*time.Second) // without a deadline, NewSession waits for etcd
	defer cancel()
	sess, err := concurrency.NewSession(opening, client, "quickstart", nil) // one per process
	if err != nil {
		return err
	}
	defer sess.Close(context.WithoutCancel(ctx)) // waits for the calls in progress
	partner, err := limited(sess)
	if err != nil {
		return err
	}
	return callers(ctx, partner)
}

// limited returns the client for the partner, one for all calls. It has no Timeout, which would end a request
// while the partner works on it: see call.
func limited(sess *concurrency.Session) (*http.Client, error) {
	sem, err := concurrency.NewSemaphore(sess, "partner", 8, &concurrency.SemaphoreOptions{AdoptLimit: true}) // operators may change it
	if err != nil {
		return nil, err
	}
	transport, err := limithttp.Transport(concurrency.Single(sem), limithttp.Options{
		Key:         func(*http.Request) (string, bool) { return "partner", true }, // all requests, under one limit
		Wait:        2 * time.Second,                                               // then a *concurrency.FullError, and nothing was sent
		ReportError: func(r *http.Request, err error) { log.Print(r.URL, ": ", err) },
	}, nil)
	return &http.Client{Transport: transport}, err
}
