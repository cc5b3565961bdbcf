// Console runs a small shop, with limits, an election, jobs and payments, and serves the operators' page of
// it at a printed address, until it is interrupted.
//
//	go run ./examples/console
//	go run ./examples/console -listen 127.0.0.1:8080 -endpoints 10.0.0.1:2379
//
// Each user of this machine may use the page and its actions, since it is a demo: a program of yours
// passes console.Options.Authorize.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/console"
	"github.com/etcdkit/etcdkit/internal/examples/cluster"
	"github.com/etcdkit/etcdkit/internal/examples/program"
)

func main() {
	var listen string
	flag.StringVar(&listen, "listen", "127.0.0.1:0", "serve the page at this address")
	program.MainOn("shop", func(ctx context.Context, etcd cluster.Etcd, client *clientv3.Client) error {
		lis, err := net.Listen("tcp", listen)
		if err != nil {
			return fmt.Errorf("-listen: %w", err)
		}
		defer lis.Close()
		fmt.Printf("console: http://%s/\n", lis.Addr())
		return shop(ctx, etcd, client, lis)
	})
}

// shop serves the page while the shop works.
func shop(ctx context.Context, etcd cluster.Etcd, client *clientv3.Client, lis net.Listener) error {
	opening, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	sess, err := concurrency.NewSession(opening, client, "shop", &concurrency.SessionOptions{Owner: "operator"})
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = sess.Close(closing)
	}()
	page, err := console.Handler(sess, &console.Options{
		Authorize: func(*http.Request, console.Action) error { return nil }, Actor: func(*http.Request) string { return "operator" },
	})
	if err != nil {
		return err
	}
	server := &http.Server{Handler: page, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	working, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- work(working, etcd) }()
	err = server.Serve(lis)
	stop()
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return errors.Join(err, <-done)
}
