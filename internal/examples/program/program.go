// Package program is shared by the quickstart programs: the flags -endpoints and -metrics, a
// client, and simulated processes and work. Main and Processes show what a program of yours does when it
// starts and ends. Demo is the frame of the larger demos.
package program

import (
	"context"
	"flag"
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
)

// Func is a program. Its context ends on Ctrl-C and SIGTERM.
type Func func(ctx context.Context, client *clientv3.Client) error

// Main is the body of main: it runs the program on the etcd of the flag -endpoints, or on an
// embedded one, and exits with status 1 if the program returns an error. With the flag -metrics it
// serves the state of the program's namespace meanwhile.
func Main(namespace string, run Func) {
	var addr string
	metrics.Flag(flag.CommandLine, &addr)
	endpoints := cluster.Flag()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := serve(ctx, addr, endpoints, namespace, run)
	cancel()
	if err != nil {
		log.Fatal(err)
	}
}

// serve is Run with metrics at an address, which it refuses before it starts an etcd.
func serve(ctx context.Context, addr, endpoints, namespace string, run Func) error {
	page, err := metrics.Listen(addr, os.Stderr)
	if err != nil {
		return err
	}
	defer page.Close()
	return Run(ctx, endpoints, func(ctx context.Context, client *clientv3.Client) error {
		if err := page.Publish(client.Endpoints(), namespace); err != nil {
			return err
		}
		return run(ctx, client)
	})
}

// Run runs the program on the etcd at the endpoints, or on an embedded one if there are none.
// It returns the error of the program, or of the start of etcd.
func Run(ctx context.Context, endpoints string, run Func) error {
	if endpoints == "" {
		log.Print("starting an embedded etcd (use -endpoints for an external one)")
	} else {
		log.Print("connecting to ", endpoints)
	}
	client, stop, err := cluster.Client(ctx, endpoints)
	if err != nil {
		return err
	}
	defer stop()
	return run(ctx, client)
}

// Processes returns a program of several simulated processes. Each is a session, with one of
// the names as its Owner.
func Processes(namespace string, run func(ctx context.Context, process []*concurrency.Session) error, names ...string) Func {
	return func(ctx context.Context, client *clientv3.Client) error {
		opening, cancel := context.WithTimeout(ctx, 5*time.Second) // without a deadline, NewSession waits for etcd
		defer cancel()
		var all []*concurrency.Session
		for _, name := range names {
			sess, err := concurrency.NewSession(opening, client, namespace, &concurrency.SessionOptions{Owner: name})
			if err != nil {
				return err
			}
			defer closeSession(ctx, sess)
			all = append(all, sess)
		}
		return run(ctx, all)
	}
}

// closeSession closes the session: Close waits for the work in progress and revokes the lease.
func closeSession(ctx context.Context, sess *concurrency.Session) {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
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
