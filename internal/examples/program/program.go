// Package program is shared by the quickstart programs: the flags of etcdctl for etcd, TLS and the
// user, the flag -metrics, a client, and simulated processes and work. Main and Processes show what a program of yours does when it
// starts and ends. Demo is the frame of the larger demos.
package program

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/examples/cluster"
	"github.com/etcdkit/etcdkit/internal/examples/metrics"
	"github.com/etcdkit/etcdkit/observe"
)

// Func is a program. Its context ends on Ctrl-C and SIGTERM.
type Func func(ctx context.Context, client *clientv3.Client) error

// Main is the body of main: it runs the program on the etcd of the flag -endpoints, or on an
// embedded one, and exits with status 1 if the program returns an error. With the flag -metrics it
// serves the state of the program's namespace meanwhile, and what the sessions with Hooks report.
func Main(namespace string, run Func) {
	MainOn(namespace, func(ctx context.Context, _ cluster.Etcd, client *clientv3.Client) error { return run(ctx, client) })
}

// OnEtcd is a Func that makes further clients.
type OnEtcd func(ctx context.Context, etcd cluster.Etcd, client *clientv3.Client) error

// MainOn is Main for a program that makes further clients.
func MainOn(namespace string, run OnEtcd) {
	var addr string
	var etcd cluster.Etcd
	metrics.Flag(flag.CommandLine, &addr)
	etcd.Define(flag.CommandLine)
	if err := etcd.Parse(flag.CommandLine, os.Args[1:]); err != nil { // of the flags itself, flag has reported it
		fmt.Fprintln(os.Stderr, err)
		flag.Usage()
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := serve(ctx, addr, etcd, namespace, run)
	cancel()
	if err != nil {
		log.Fatal(err)
	}
}

// serve is runOn with metrics at an address, which it refuses before it starts an etcd.
func serve(ctx context.Context, addr string, etcd cluster.Etcd, namespace string, run OnEtcd) error {
	page, err := metrics.Listen(addr, os.Stderr)
	if err != nil {
		return err
	}
	defer page.Close()
	return runOn(ctx, etcd, func(ctx context.Context, etcd cluster.Etcd, client *clientv3.Client) error {
		if err := page.Publish(etcd, namespace); err != nil {
			return err
		}
		return run(metrics.In(ctx, page), etcd, client)
	})
}

// Run runs the program on an etcd, or on an embedded one. It returns the error of the program, or of the
// start of etcd.
func Run(ctx context.Context, etcd cluster.Etcd, run Func) error {
	return runOn(ctx, etcd, func(ctx context.Context, _ cluster.Etcd, client *clientv3.Client) error { return run(ctx, client) })
}

func runOn(ctx context.Context, etcd cluster.Etcd, run OnEtcd) error {
	if len(etcd.Endpoints) == 0 {
		log.Print("starting an embedded etcd (use -endpoints for an external one)")
	}
	etcd, own, stop, err := etcd.Open(ctx, 1)
	if err != nil {
		return err
	}
	defer stop()
	if own != nil {
		return run(ctx, etcd, own.Client())
	}
	client, err := etcd.Dial()
	if err != nil {
		return err
	}
	defer CloseClient(client)
	return run(ctx, etcd, client)
}

// CloseClient closes a client of etcd's after its sessions, and waits for that no longer than a second: Close can hang if
// etcd refuses a watch that ends.
func CloseClient(client *clientv3.Client) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = client.Close()
	}()
	select {
	case <-closed:
	case <-time.After(time.Second):
	}
}

// Processes returns a program of several simulated processes. Each is a session, with one of
// the names as its Owner.
func Processes(namespace string, run func(ctx context.Context, process []*concurrency.Session) error, names ...string) Func {
	return func(ctx context.Context, client *clientv3.Client) error {
		opening, cancel := context.WithTimeout(ctx, 5*time.Second) // without a deadline, NewSession waits for etcd
		defer cancel()
		var all []*concurrency.Session
		for _, name := range names {
			hooks, err := metrics.Hooks(ctx, name)
			if err != nil {
				return err
			}
			sess, err := concurrency.NewSession(opening, client, namespace, &concurrency.SessionOptions{Owner: name, Hooks: hooks})
			if err != nil {
				return err
			}
			defer CloseSession(sess)
			all = append(all, sess)
		}
		return run(ctx, all)
	}
}

// Hooks returns the hooks of a program's session, by which -metrics serves what the session reports. A program of yours
// gives those of promkit or otelkit.
func Hooks(ctx context.Context) []observe.Hooks {
	hooks, err := metrics.Hooks(ctx, "")
	if err != nil {
		log.Fatal(err)
	}
	return hooks
}

// CloseSession closes the session: Close waits for the work in progress and revokes the lease.
func CloseSession(sess *concurrency.Session) {
	closing, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := sess.Close(closing); err != nil {
		log.Print(err)
	}
}

// Work simulates work of duration d and logs its begin and its completion. As work under a
// permit should, it stops when ctx ends and returns the cause.
func Work(ctx context.Context, name string, d time.Duration) error {
	log.Print(name, " begins")
	if err := Sleep(ctx, d); err != nil {
		return err
	}
	log.Print(name, " is complete")
	return nil
}

// Sleep returns after d, or with the cause when ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Serve serves h on a port of the loopback interface until stop is called.
func Serve(h http.Handler) (url string, stop func()) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = srv.Serve(lis) }()
	return "http://" + lis.Addr().String(), func() { _ = srv.Close() }
}
