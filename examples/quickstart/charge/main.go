// Charge is a payment service whose provider takes idempotency keys, as most do. A payment is charged once, whatever
// fails and however often its client repeats it, for as long as the provider keeps the key: an attempt that takes over
// from a dead one, and one after a timeout, sends the provider the same key, and no operator is needed. A provider that
// forgets keys sooner than clients stop retrying may charge twice: ../payments is for that, and for one without keys.
// Servers that clients reach under several host names set idemhttp.Options.Host. It runs until Ctrl-C, and prints a command to try.
//
//	go run ./examples/quickstart/charge
//	go run ./examples/quickstart/charge -endpoints 127.0.0.1:2379 -provider http://127.0.0.1:9000
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
	store, err := idempotency.NewStore(sess, "charges", &idempotency.Options{SingleTenant: true}) // OnLost: TakeOver, the default
	if err != nil {
		return err
	}
	once, err := idemhttp.Middleware(store, &idemhttp.Options{Wait: 3 * time.Second, Note: order, ReportError: report})
	if err != nil { // without Wait, a duplicate of a payment in progress gets 409 at once
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /payments", once(http.HandlerFunc(pay)))
	return serve(sigterm, mux, sess.Close) // which waits for the payments in progress
}

// report is called with what an operator should know, in an outage for each request: count them, and log a sample.
func report(r *http.Request, err error) { log.Print(r.URL.Path, ": ", err) }
