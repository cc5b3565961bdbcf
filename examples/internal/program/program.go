// Package program is what the quickstart programs have in common: the flag -endpoints, a
// client, and stand-ins for other processes and for work. Main and Processes show what a
// program of yours does when it starts and ends.
package program

import (
	"context"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/examples/internal/cluster"
)

// Func is a program. Its context ends on Ctrl-C and SIGTERM.
type Func func(ctx context.Context, client *clientv3.Client) error

// Main is the body of main: it runs the program on the etcd of the flag -endpoints, or on
// an embedded one, and ends the process with status 1 if the program returns an error.
func Main(run Func) {
	endpoints := cluster.Flag()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := Run(ctx, endpoints, run)
	cancel()
	if err != nil {
		log.Fatal(err)
	}
}

// Run runs the program on the etcd at these endpoints, or on an embedded one if there are
// none. It returns the error of the program, or of starting etcd.
func Run(ctx context.Context, endpoints string, run Func) error {
	if endpoints == "" {
		log.Print("starting an etcd for this run (-endpoints names another)")
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

// Processes returns a program of several processes, each played by a session. They have
// these names as holders.
func Processes(namespace string, run func(ctx context.Context, process []*concurrency.Session) error, names ...string) Func {
	return func(ctx context.Context, client *clientv3.Client) error {
		opening, cancel := context.WithTimeout(ctx, 5*time.Second) // without a deadline, NewSession waits for etcd
		defer cancel()
		var all []*concurrency.Session
		for _, name := range names {
			sess, err := concurrency.NewSession(opening, client, namespace, &concurrency.SessionOptions{Holder: name})
			if err != nil {
				return err
			}
			defer closeSession(ctx, sess)
			all = append(all, sess)
		}
		return run(ctx, all)
	}
}

// closeSession waits for the work in progress, and revokes the lease.
func closeSession(ctx context.Context, sess *concurrency.Session) {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := sess.Close(closing); err != nil {
		log.Print(err)
	}
}

// Work stands for work that takes that long, and logs when it begins and when it is
// complete. As work under a permit should, it stops when ctx ends, and returns the cause.
func Work(ctx context.Context, name string, d time.Duration) error {
	log.Print(name, " begins")
	select {
	case <-time.After(d):
		log.Print(name, " is complete")
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
