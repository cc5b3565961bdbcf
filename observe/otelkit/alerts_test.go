package otelkit_test

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/etcdkit/etcdkit/internal/proof/signals"
	"github.com/etcdkit/etcdkit/observe"
	"github.com/etcdkit/etcdkit/observe/otelkit"
)

const rulesFile = "../../docs/observability/alerts.yaml"

var testsFiles = []string{"../../docs/observability/alerts_test.yaml", "../../docs/observability/alerts_healthy_test.yaml"}

// reported returns all metrics as OpenTelemetry's exporter for Prometheus writes them, with the labels of their series,
// from calls of each operation and one event of each kind.
func reported(t *testing.T) signals.Metrics {
	t.Helper()
	reader := sdkmetric.NewManualReader()
	hooks, err := otelkit.New(&otelkit.Options{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), TracerProvider: trace.NewTracerProvider()})
	require.NoError(t, err)
	ctx := context.Background()
	call := observe.Call{Namespace: "ns", Kind: observe.Job, Name: "x"}
	for _, op := range []observe.Op{observe.Acquire, observe.Hold, observe.Release, observe.Campaign, observe.Lead, observe.Claim, observe.Run, observe.Begin, observe.Execute, observe.Record} {
		call.Op = op
		for _, o := range []observe.Outcome{{Result: observe.Granted, Tick: time.Now()}, {Result: observe.Lost, Reason: observe.Evicted}} {
			o.Took = time.Second
			_, end := hooks.Start(ctx, call)
			end(o)
		}
	}
	for _, e := range []observe.Event{
		observe.Waiting{Call: call}, observe.PermitLost{Call: call, Reason: observe.Evicted}, observe.Overrun{Call: call},
		observe.SessionLost{Namespace: "ns"}, observe.SessionRecovered{Namespace: "ns"},
		observe.LeaseRenewed{Namespace: "ns", Age: time.Second, TTL: 3 * time.Second},
		observe.LimitChanged{Namespace: "ns", Kind: observe.Semaphore, Name: "x"},
		observe.OutagePolicy{Namespace: "ns", Kind: observe.Limiter, Name: "x", Policy: "open", Active: true},
		observe.SessionClosed{Namespace: "ns", Lost: true}, observe.HookPanicked{Namespace: "ns"}, observe.Unclaimed{Call: call},
		observe.RateCalls{Namespace: "ns", Name: "x", Result: observe.Refused, Reason: observe.Exceeded, Count: 1},
	} {
		hooks.Event(ctx, e)
	}
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(ctx, &all))
	out := signals.Metrics{}
	for _, m := range all.ScopeMetrics[0].Metrics {
		name := strings.ReplaceAll(m.Name, ".", "_")
		if m.Unit == "s" {
			name += "_seconds"
		}
		var labels []string
		see := func(set attribute.Set) {
			for _, kv := range set.ToSlice() {
				labels = append(labels, strings.ReplaceAll(string(kv.Key), ".", "_"))
			}
		}
		switch data := m.Data.(type) {
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				see(p.Attributes)
			}
			out[name+"_bucket"], out[name+"_sum"], out[name+"_count"] = append(labels, "le"), labels, labels
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				see(p.Attributes)
			}
			if data.IsMonotonic {
				name += "_total"
			}
			out[name] = labels
		}
	}
	return out
}

// The alerts and the dashboard use what is reported, and everything that is reported is in one of them or
// says more than is needed there.
func TestAlertsAndDashboard(t *testing.T) {
	t.Parallel()
	own := reported(t)
	joined := maps.Clone(own) // with those of the exporter that rules look at
	for _, name := range []string{"etcdkit_held", "etcdkit_limit", "etcdkit_limiter_default_limit", "etcdkit_limiter_own_limits"} {
		joined[name] = []string{"etcdkit_namespace", "etcdkit_kind", "etcdkit_name"}
	}
	used := signals.Rules(t, rulesFile, testsFiles, joined)
	used = append(used, signals.Dashboard(t, "../../docs/observability/dashboard.json", own)...)
	signals.Shown(t, own, used, "etcdkit_release_duration_seconds", "etcdkit_request_unclaimed_total", "etcdkit_session_renewal_age_seconds")
}
