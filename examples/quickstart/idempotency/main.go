// Idempotency shows two servers and a client that sends one payment to them three times. The card is
// charged once, and all three responses have the same receipt.
//
//	go run ./examples/quickstart/idempotency
//	go run ./examples/quickstart/idempotency -endpoints 127.0.0.1:2379
package main

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
	"github.com/etcdkit/etcdkit/internal/examples/program"
)

var run = program.Processes("quickstart", shop, "A", "B")

func main() { program.Main("quickstart", run) }

func shop(ctx context.Context, process []*concurrency.Session) error {
	var charges atomic.Int64
	pay := func(w http.ResponseWriter, r *http.Request) {
		n := charges.Add(1) // with a real provider: under the ChildKey of idempotency.FromContext(r.Context())
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "charge %d", n)
	}
	var servers []string
	for _, sess := range process {
		store, err := idempotency.NewStore(sess, "payments", &idempotency.Options{SingleTenant: true})
		if err != nil {
			return err
		}
		once, err := idemhttp.Middleware(store, nil)
		if err != nil {
			return err
		}
		mux := http.NewServeMux()
		mux.Handle("POST /payments", once(http.HandlerFunc(pay)))
		url, stop := program.Serve(mux)
		defer stop()
		servers = append(servers, url)
	}

	buyer := &http.Client{Transport: &idemhttp.Transport{}}
	defer buyer.CloseIdleConnections()
	payment := idemhttp.WithNewKey(ctx) // one key for one payment, however often it is sent
	for try := range 3 {
		if err := send(payment, buyer, servers[try%2]+"/payments"); err != nil {
			return err
		}
	}
	fmt.Println("charges:", charges.Load())
	return nil
}
