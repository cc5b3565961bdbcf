package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/observe"
	"github.com/etcdkit/etcdkit/observe/otelkit"
	"github.com/etcdkit/etcdkit/observe/promkit"
)

// A session reports through OpenTelemetry's exporter for Prometheus and through client_golang, and what Prometheus scrapes
// is the same: names, types, help, labels and values.
func TestOtelkitAndPromkitAreScrapedAlike(t *testing.T) {
	t.Parallel()
	f := testkit.Shared(t)
	ctx := ctxT(t)
	theirs, ours := prometheus.NewRegistry(), prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(theirs), otelprometheus.WithoutTargetInfo())
	require.NoError(t, err)
	viaOtel, err := otelkit.New(&otelkit.Options{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter)), TracerProvider: noop.NewTracerProvider()})
	require.NoError(t, err)
	direct, err := promkit.New(ours, nil)
	require.NoError(t, err)
	s, _ := f.Session(&concurrency.SessionOptions{TTL: 300 * time.Second, Hooks: []observe.Hooks{viaOtel, direct}})
	sem, err := concurrency.NewSemaphore(s, "charge", 1, nil)
	require.NoError(t, err)
	require.NoError(t, sem.Do(ctx, func(ctx context.Context, _ *concurrency.Permit) error {
		_, err := sem.TryAcquire(ctx)
		require.ErrorIs(t, err, concurrency.ErrFull)
		return nil
	}))
	_, err = sem.Acquire(ctx, concurrency.ID("i"))
	require.NoError(t, err)
	require.NoError(t, sem.Evict(ctx, "i", ""))
	mail, err := concurrency.NewRateLimiter(s, "mail", concurrency.Rate{PerSecond: 100, Burst: 10}, nil)
	require.NoError(t, err)
	require.NoError(t, mail.Wait(ctx))
	require.NoError(t, f.RevokeLease(ctx, s.Lease()))
	require.NoError(t, sem.Do(ctx, func(context.Context, *concurrency.Permit) error { return nil }))
	require.NoError(t, s.Close(ctx))

	want, got := scraped(t, theirs), scraped(t, ours)
	require.Greater(t, len(got), 15)
	require.Equal(t, want, got)
}

// scraped returns the series of a registry, without the labels of an instrumentation scope.
func scraped(t *testing.T, reg *prometheus.Registry) map[string]string {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	out := map[string]string{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				if l.GetValue() != "" && !strings.HasPrefix(l.GetName(), "otel_scope_") {
					labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
				}
			}
			slices.Sort(labels)
			value := fmt.Sprint(m.GetGauge().GetValue() + m.GetCounter().GetValue())
			if f.GetType() == dto.MetricType_HISTOGRAM {
				value = fmt.Sprintf("%d %.6f", m.GetHistogram().GetSampleCount(), m.GetHistogram().GetSampleSum())
				for _, b := range m.GetHistogram().GetBucket() {
					value += fmt.Sprintf(" %v:%d", b.GetUpperBound(), b.GetCumulativeCount())
				}
			}
			out[fmt.Sprintf("%s %v %q {%s}", f.GetName(), f.GetType(), f.GetHelp(), strings.Join(labels, ","))] = value
		}
	}
	return out
}
