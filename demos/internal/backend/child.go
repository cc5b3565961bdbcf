package backend

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/examples/metrics"
	"github.com/etcdkit/etcdkit/internal/examples/program"
)

// Event is a line that a child writes for its parent.
type Event struct {
	Kind string `json:"kind"`
	Text string `json:"text,omitempty"`
}

// ready is the event of a child that serves, with its address.
const ready = "ready"

// Child is the main function of a child: of a process with the environment variable env. It decodes the
// settings from that, and calls run with a context that ends with the standard input. If run returns an error
// before that, the process exits with status 1. In another process Child does nothing and returns false.
func Child[Settings any](env string, run func(context.Context, Settings) error) bool {
	if os.Getenv(env) == "" {
		return false
	}
	signal.Ignore(os.Interrupt) // Ctrl-C reaches the parent, too, which ends its children
	var s Settings
	err := json.Unmarshal([]byte(os.Getenv(env)), &s)
	if err == nil {
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			defer cancel()
			_, _ = io.Copy(io.Discard, os.Stdin)
		}()
		if err = run(ctx, s); ctx.Err() != nil {
			err = nil
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "child process:", err)
		os.Exit(1)
	}
	return true
}

// Serve serves h in a child until ctx ends, and then waits for the requests in progress, for two
// seconds at most. If sockets is not empty, it serves on a socket in that folder as well: see Front. It
// returns an error if the child cannot listen.
func Serve(ctx context.Context, sockets string, h http.Handler) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	all := []net.Listener{ln}
	if sockets != "" {
		_, port, _ := net.SplitHostPort(ln.Addr().String())
		also, err := net.Listen("unix", socket(sockets, port))
		if err != nil {
			_ = ln.Close()
			return err
		}
		all = append(all, also)
	}
	srv := &http.Server{Handler: h}
	served := make(chan error, len(all))
	for _, ln := range all {
		go func() { served <- srv.Serve(ln) }()
	}
	Emit(ready, ln.Addr().String())
	select {
	case err = <-served:
		_ = srv.Close()
		return err
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if srv.Shutdown(closing) != nil {
		_ = srv.Close()
	}
	for range all {
		<-served
	}
	return nil
}

// socket returns the name of the socket, in a folder, of the server on a port.
func socket(folder, port string) string { return filepath.Join(folder, port) }

// Session opens the session of a child, with a client of its own. shut closes both. What the session reports is in the
// metrics of the parent, with its Owner as the label instance.
func Session(ctx context.Context, at program.Place, opts *concurrency.SessionOptions) (sess *concurrency.Session, client *clientv3.Client, shut func(), err error) {
	hooks, leave, err := metrics.Join(at.Metrics, opts.Owner)
	if err != nil {
		return nil, nil, nil, err
	}
	if client, err = at.Dial(); err != nil {
		leave()
		return nil, nil, nil, err
	}
	o := *opts
	o.Hooks = append(hooks, o.Hooks...)
	start, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if sess, err = concurrency.NewSession(start, client, at.Namespace, &o); err != nil {
		_ = client.Close()
		leave()
		return nil, nil, nil, err
	}
	return sess, client, func() {
		closing, stop := context.WithTimeout(context.Background(), 2*time.Second)
		defer stop()
		_ = sess.Close(closing)
		_ = client.Close()
		leave()
	}, nil
}

// Emit writes an event to the parent, in one piece.
func Emit(kind, text string) {
	line, err := json.Marshal(Event{kind, text})
	if err == nil {
		_, err = os.Stdout.Write(append(line, '\n'))
	}
	if err != nil {
		os.Exit(1) // the parent has ended
	}
}

// Reply writes a value as JSON.
func Reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
