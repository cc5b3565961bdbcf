package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/etcdkit/etcdkit/exporter"
)

func (a *app) export() *cobra.Command {
	var listen string
	var names int
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Publish the state of a namespace as metrics for Prometheus",
		Long: `Publish the state of a namespace as metrics for Prometheus at /metrics, until the command is interrupted:
package exporter lists them. /healthz answers 200 while the metrics are up to date, and 503 otherwise, for
example while etcd does not answer; the exporter connects again by itself.

Read permission for the namespace is enough, and one process for each namespace. Warnings are written to
standard error.`,
		Example: "etcdkit export -N payments\netcdkit export -N payments --listen :9464",
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := a.etcd.space(); err != nil {
				return err
			}
			client, err := a.etcd.client(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()
			exp, err := exporter.New(client, a.etcd.namespace, &exporter.Options{Prefix: a.etcd.prefix, MaxNames: names, Logger: lines(a.std.Err, zap.WarnLevel)})
			if errors.Is(err, exporter.ErrInvalid) {
				return usageError{err}
			}
			if err != nil {
				return err
			}
			return a.serve(cmd.Context(), listen, exp)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:9464", "address at which metrics are served")
	cmd.Flags().IntVar(&names, "max-names", 1000, "publish so many queues, jobs and stores at most, each; etcdkit_exporter_series_dropped counts the series of the others")
	return cmd
}

// lines returns a logger that writes lines, of a level and above.
func lines(to io.Writer, level zapcore.Level) *zap.Logger {
	config := zap.NewProductionEncoderConfig()
	config.EncodeTime = zapcore.ISO8601TimeEncoder
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(config), zapcore.Lock(zapcore.AddSync(to)), level))
}

// serve runs the exporter and serves its metrics until ctx ends.
func (a *app) serve(ctx context.Context, address string, exp *exporter.Exporter) error {
	reg := prometheus.NewRegistry()
	reg.MustRegister(exp)
	lis, err := net.Listen("tcp", address)
	if err != nil {
		return usageError{fmt.Errorf("--listen: %w", err)}
	}
	server := &http.Server{Handler: pages(reg), ReadHeaderTimeout: 5 * time.Second}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 2)
	go func() { ended <- exp.Run(ctx) }()
	go func() { ended <- server.Serve(lis) }()
	err = a.print(struct {
		schema
		URL string `json:"url"`
	}{schemaOf("export"), "http://" + lis.Addr().String() + "/metrics"}, func(t *table) { t.line("metrics at http://" + lis.Addr().String() + "/metrics") })
	if err == nil {
		err = <-ended
	}
	interrupted := ctx.Err() != nil
	cancel()
	closing, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer stop()
	_ = server.Shutdown(closing)
	if interrupted {
		return nil // that is how the command is ended
	}
	return err
}

// pages serves the metrics, and whether they are up to date.
func pages(from prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(from, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if !current(from) {
			http.Error(w, "the state of the namespace is not up to date: etcd does not answer, or denies the user", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

// current reports whether the exporter says that its metrics are up to date.
func current(from prometheus.Gatherer) bool {
	families, err := from.Gather()
	if err != nil {
		return false
	}
	for _, f := range families {
		if f.GetName() == "etcdkit_exporter_up" && len(f.GetMetric()) == 1 {
			return f.GetMetric()[0].GetGauge().GetValue() == 1
		}
	}
	return false
}
