package promkit_test

import (
	"context"
	"fmt"
	"log"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/observe"
	"github.com/etcdkit/etcdkit/observe/promkit"
)

// A session reports to a registry, which a program serves by promhttp.
func Example() {
	ctx := context.Background()
	etcd, err := embedtest.New(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	client, err := etcd.Dial(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	registry := prometheus.NewRegistry()
	hooks, err := promkit.New(registry, nil)
	if err != nil {
		log.Fatal(err)
	}
	sess, err := concurrency.NewSession(ctx, client.Client, "media", &concurrency.SessionOptions{Hooks: []observe.Hooks{hooks}})
	if err != nil {
		log.Fatal(err)
	}
	defer sess.Close(ctx)
	images, err := concurrency.NewSemaphore(sess, "images", 1, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := images.Do(ctx, func(context.Context, *concurrency.Permit) error { return nil }); err != nil {
		log.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "etcdkit_acquire_duration_seconds" {
			fmt.Println(f.GetName(), f.GetMetric()[0].GetHistogram().GetSampleCount())
		}
	}
	// Output: etcdkit_acquire_duration_seconds 1
}
