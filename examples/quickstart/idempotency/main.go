// Idempotency shows two servers, played by two sessions, that get one payment three times:
// from a client that has not heard the answer and tries again, at the other server. It
// is charged once, and all three get the same receipt.
//
//	go run ./examples/quickstart/idempotency
//	go run ./examples/quickstart/idempotency -endpoints 127.0.0.1:2379
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/examples/internal/cluster"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

func main() {
	if err := run(context.Background(), cluster.Flag()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, endpoints string) error {
	client, stop, err := cluster.Client(ctx, endpoints)
	if err != nil {
		return err
	}
	defer stop()
	opening, cancel := context.WithTimeout(ctx, 5*time.Second) // without an end to it, NewSession waits for etcd
	defer cancel()
	var charges atomic.Int64
	pay := func(w http.ResponseWriter, r *http.Request) {
		n := charges.Add(1) // r.Context() is the attempt's; idempotency.FromContext has its child keys
		w.Header().Set("Location", "/receipts/1")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "charge %d", n)
	}
	var servers []string
	for range 2 {
		sess, err := concurrency.NewSession(opening, client, "quickstart", nil) // one per process
		if err != nil {
			return err
		}
		defer sess.Close(ctx)
		store, err := idempotency.NewStore(sess, "payments", &idempotency.Options{SingleTenant: true})
		if err != nil {
			return err
		}
		mux := http.NewServeMux()
		mux.Handle("POST /payments", idemhttp.Middleware(store, nil)(http.HandlerFunc(pay)))
		mux.Handle("GET /idempotency", idemhttp.PolicyHandler(store, nil))
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
		defer srv.Close()
		go func() { _ = srv.Serve(lis) }()
		servers = append(servers, "http://"+lis.Addr().String())
	}

	buyer := &http.Client{Transport: &idemhttp.Transport{}}
	defer buyer.CloseIdleConnections()
	payment := idemhttp.WithNewKey(ctx) // one key for one payment, however often it is sent
	for try := range 3 {
		req, err := http.NewRequestWithContext(payment, http.MethodPost, servers[try%2]+"/payments", strings.NewReader(`{"cents":100}`))
		if err != nil {
			return err
		}
		resp, err := buyer.Do(req)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			return err
		}
		fmt.Printf("%s: %s, replayed: %q\n", resp.Status, body, resp.Header.Get("Idempotent-Replayed"))
	}
	fmt.Println("charges:", charges.Load())
	return nil
}
