// Payments is a payment service whose provider takes no idempotency keys and may not answer in time. A
// payment is charged once, whatever fails and however often its client repeats it within a day (Retain); if it is not
// known whether it was charged, an operator decides within a week (RetainUnknown). It runs until Ctrl-C, and prints
// commands to try. Servers that clients reach under several host names set idemhttp.Options.Host.
//
//	go run ./examples/quickstart/payments
//	go run ./examples/quickstart/payments -endpoints 127.0.0.1:2379 -provider http://127.0.0.1:9000
package main

import (
	"context"
	"flag"
	"log"
	"log/slog"
	"net/http"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
	"github.com/etcdkit/etcdkit/internal/examples/program"
	"github.com/etcdkit/etcdkit/observe/slogkit"
)

var (
	listen   = flag.String("listen", "127.0.0.1:8080", "address of the service")
	patience = flag.Duration("patience", time.Second, "how long the provider may take")
	provider = flag.String("provider", "", "URL of the provider (here one in this process without it, which answers every other charge too late)")
)

func main() { program.Main("shop", run) }

func run(sigterm context.Context, client *clientv3.Client) error {
	opening, cancel := context.WithTimeout(sigterm, 5*time.Second)
	defer cancel()
	sess, err := concurrency.NewSession(opening, client, "shop", &concurrency.SessionOptions{Logger: slogkit.Logger(slog.Default().Handler()), Hooks: program.Hooks(sigterm)})
	if err != nil {
		return err
	}
	store, err := idempotency.NewStore(sess, "payments", &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse})
	if err != nil {
		return err
	}
	once, err := idemhttp.Middleware(store, &idemhttp.Options{Note: order, ReportError: report})
	if err != nil { // without Wait, a duplicate of a payment in progress gets 409 at once
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /payments", once(http.HandlerFunc(pay)))
	return serve(sigterm, mux, client.Endpoints(), sess.Close) // which waits for the payments in progress
}

// report is called with what an operator should know, such as a payment whose outcome is unknown, and in an outage for each
// request: count them, and log a sample.
func report(r *http.Request, err error) { log.Print(r.URL.Path, ": ", err) }
