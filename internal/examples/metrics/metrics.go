// Package metrics serves the state of namespaces, and what the processes of an example report, to Prometheus, at
// the address of the flag -metrics, while the example runs.
package metrics

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/etcdkit/etcdkit/exporter"
	"github.com/etcdkit/etcdkit/internal/examples/cluster"
)

// Flag defines the flag -metrics, whose value is the argument of Listen.
func Flag(f *flag.FlagSet, addr *string) {
	f.StringVar(addr, "metrics", "", "serve the state in etcd, and what processes report, as Prometheus metrics at this address, for example :9464 (default: off)")
}

// Server serves /metrics at one address. Its methods must be called by one goroutine at a time.
type Server struct {
	registry *prometheus.Registry
	children *children
	url      string
	server   *http.Server // nil: off
	serving  sync.WaitGroup
	stops    []func() // of the exporters
}

// Listen serves /metrics at addr, such as ":9464", until Close, and writes the URL to out in one line. If
// addr is empty, nothing is served, and the Server does nothing. Listen returns an error that names the
// flag if addr is no address or is in use.
func Listen(addr string, out io.Writer) (*Server, error) {
	if addr == "" {
		return &Server{}, nil
	}
	lis, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("-metrics %s: %w", addr, err)
	}
	s := &Server{registry: prometheus.NewRegistry(), children: newChildren(), url: address(lis.Addr())}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.Gatherers{s.registry, s.children}, promhttp.HandlerOpts{}))
	mux.Handle("POST /children/"+s.children.token, s.children)
	s.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	s.serving.Go(func() { _ = s.server.Serve(lis) })
	fmt.Fprintf(out, "metrics: %s\n", s.url)
	return s, nil
}

// address returns where a browser on this host finds the metrics.
func address(addr net.Addr) string {
	tcp := addr.(*net.TCPAddr)
	host := tcp.IP.String()
	if tcp.IP.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, strconv.Itoa(tcp.Port)) + "/metrics"
}

// probe is how often an exporter asks etcd whether its state is up to date: if etcd is stopped, the
// state is served for three times as long.
const probe = time.Second

// Publish adds the state of namespaces, with an exporter for each. The exporters have an etcd client of
// their own, and write nothing to etcd. Publish returns the errors of Etcd.Dial, and one for an invalid namespace
// and for a namespace that is published already.
func (s *Server) Publish(etcd cluster.Etcd, namespaces ...string) error {
	if s.server == nil {
		return nil
	}
	client, err := etcd.Dial()
	if err != nil {
		return err
	}
	ctx, halt := context.WithCancel(context.Background())
	var running sync.WaitGroup
	s.stops = append(s.stops, func() {
		halt()
		running.Wait()
		_ = client.Close()
	})
	for _, namespace := range namespaces {
		exp, err := exporter.New(client, namespace, &exporter.Options{Probe: probe})
		if err == nil {
			err = s.registry.Register(exp)
		}
		if err != nil {
			return fmt.Errorf("publish the metrics of %q: %w", namespace, err)
		}
		running.Go(func() { _ = exp.Run(ctx) }) // until ctx ends
	}
	return nil
}

// grace is how long Close waits for a scrape in progress.
const grace = time.Second

// Close stops the server and the exporters. It may be called several times.
func (s *Server) Close() {
	if s.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if s.server.Shutdown(ctx) != nil {
		_ = s.server.Close()
	}
	s.serving.Wait()
	for _, stop := range s.stops {
		stop()
	}
	s.stops = nil
}
