package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/exporter"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// Export returns the verb export.
func Export(c *verb.Call) *cobra.Command {
	var listen string
	var names int
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Publish the state of a namespace as metrics for Prometheus",
		Long: `Publish the state of a namespace as metrics for Prometheus at /metrics, until the command is interrupted:
package exporter lists them. /healthz answers 200 if etcd has confirmed the state in the last 15 seconds, and 503
otherwise; it reads nothing. The exporter connects again by itself.

Read permission for the namespace is enough, and one process for each namespace. Warnings are written to
standard error.`,
		Example: "etcdkit export -N payments\netcdkit export -N payments --listen :9464",
		Args:    verb.Arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			space, err := c.Etcd.Space()
			if err != nil {
				return err
			}
			c.SurviveReader()
			client, err := c.Etcd.Client(cmd.Context())
			if err != nil {
				return err
			}
			defer verb.Close(client)
			exp, err := exporter.New(client, c.Etcd.Namespace, &exporter.Options{Prefix: c.Etcd.Prefix, MaxNames: names,
				Logger: output.Logger(c.Std.Err, zap.WarnLevel)})
			if errors.Is(err, exporter.ErrInvalid) {
				return exit.AsUsage(err)
			}
			if err != nil {
				return err
			}
			return exit.Served(cmd.Context(), serve(cmd.Context(), c, listen, exp, func(ctx context.Context) { sayEmpty(ctx, c, client, space) }))
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:9464", "address at which metrics are served")
	cmd.Flags().IntVar(&names, "max-names", 1000,
		"publish so many queues, jobs and stores at most, each; etcdkit_exporter_series_dropped counts the series of the others")
	return cmd
}

// sayEmpty says that etcd has nothing in a namespace: its name may be misspelled. Without an answer it says nothing.
func sayEmpty(ctx context.Context, c *verb.Call, kv clientv3.KV, space keyspace.Space) {
	ctx, cancel := context.WithTimeout(ctx, c.Etcd.Timeout)
	defer cancel()
	resp, err := kv.Get(ctx, space.Root(), clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly())
	if err == nil && len(resp.Kvs) == 0 {
		fmt.Fprintf(c.Std.Err, "etcd has nothing in namespace %s, which is published from its first key on: 'etcdkit ls' lists the namespaces\n",
			output.ShellWord(c.Etcd.Namespace))
	}
}

// serve runs the exporter and serves its metrics until ctx ends. started is called when it does.
func serve(ctx context.Context, c *verb.Call, address string, exp *exporter.Exporter, started func(context.Context)) error {
	lis, err := net.Listen("tcp", address)
	if err != nil {
		return exit.Usagef("--listen: %w", err)
	}
	server := &http.Server{Handler: Pages(exp, exp.Up), ReadHeaderTimeout: 5 * time.Second}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 2)
	go func() { ended <- exp.Run(ctx) }()
	go func() { ended <- server.Serve(lis) }()
	started(ctx)
	err = c.Print(struct {
		output.Form
		URL string `json:"url"`
	}{output.FormOf("export"), "http://" + lis.Addr().String() + "/metrics"}, func(t *output.Table) {
		t.Line("metrics at http://" + lis.Addr().String() + "/metrics")
	})
	if err == nil {
		err = exit.Early(ctx, <-ended)
	}
	cancel()
	closing, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer stop()
	_ = server.Shutdown(closing)
	return err
}

// Pages serves the metrics of an exporter at /metrics, and at /healthz whether they are up to date: 200, or 503. Health gathers
// no metrics: a probe comes each few seconds, and must not fail because there are many names.
func Pages(from prometheus.Gatherer, up func() bool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(from, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if !up() {
			http.Error(w, "the state of the namespace is not up to date: etcd does not answer, or denies the user", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}
