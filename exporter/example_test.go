package exporter_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/exporter"
)

// One process publishes the state of the namespace.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	etcd, err := embedtest.New(ctx, nil) // a program has a client of its own
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	client := etcd.Client()

	exp, err := exporter.New(client, "payments", nil)
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- exp.Run(ctx) }()
	reg := prometheus.NewRegistry()
	reg.MustRegister(exp)
	server := httptest.NewServer(promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	defer server.Close()

	sess, err := concurrency.NewSession(ctx, client, "payments", nil)
	if err != nil {
		log.Fatal(err)
	}
	charge, err := concurrency.NewSemaphore(sess, "charge", 3, nil)
	if err != nil {
		log.Fatal(err)
	}
	permit, err := charge.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(scrape(server.URL, "etcdkit_held"))
	if err := permit.Release(ctx); err != nil {
		log.Fatal(err)
	}
	if err := sess.Close(ctx); err != nil {
		log.Fatal(err)
	}
	cancel()
	fmt.Println(<-ended)
	// Output:
	// etcdkit_held{etcdkit_kind="semaphore",etcdkit_name="charge",etcdkit_namespace="payments"} 1
	// context canceled
}

// scrape waits until a page has a series of a metric that is not 0, and returns its line.
func scrape(url, metric string) string {
	for {
		resp, err := http.Get(url)
		if err != nil {
			log.Fatal(err)
		}
		var page strings.Builder
		if err := resp.Write(&page); err != nil {
			log.Fatal(err)
		}
		for line := range strings.Lines(page.String()) {
			if strings.HasPrefix(line, metric+"{") && !strings.HasSuffix(strings.TrimSpace(line), " 0") {
				return strings.TrimSpace(line)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
}
