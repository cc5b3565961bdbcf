package otelkit_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/etcdkit/etcdkit/internal/proof/signals"
	"github.com/etcdkit/etcdkit/observe"
	"github.com/etcdkit/etcdkit/observe/otelkit"
)

const rulesFile = "../../docs/observability/alerts.yaml"

var testsFiles = []string{"../../docs/observability/alerts_test.yaml", "../../docs/observability/alerts_healthy_test.yaml"}

// reported returns the names of all metrics as OpenTelemetry's exporter for Prometheus writes them, from
// one call of each operation and one event of each kind.
func reported(t *testing.T) (names []string) {
	t.Helper()
	reader := sdkmetric.NewManualReader()
	hooks, err := otelkit.New(&otelkit.Options{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), TracerProvider: trace.NewTracerProvider()})
	require.NoError(t, err)
	ctx := context.Background()
	for _, op := range []observe.Op{observe.Acquire, observe.Hold, observe.Release, observe.Campaign, observe.Lead, observe.Claim, observe.Run, observe.Begin, observe.Execute, observe.Record} {
		_, end := hooks.Start(ctx, observe.Call{Op: op, Kind: observe.Job, Name: "x"})
		end(observe.Outcome{Result: observe.Granted, Took: time.Second, Tick: time.Now()})
	}
	for _, e := range []observe.Event{
		observe.Waiting{}, observe.PermitLost{}, observe.Overrun{}, observe.SessionLost{}, observe.SessionRecovered{},
		observe.LeaseRenewed{Age: time.Second, TTL: 3 * time.Second}, observe.LimitChanged{}, observe.OutagePolicy{Active: true},
		observe.SessionClosed{Lost: true}, observe.RateCalls{Count: 1}, observe.HookPanicked{},
	} {
		hooks.Event(ctx, e)
	}
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(ctx, &all))
	for _, m := range all.ScopeMetrics[0].Metrics {
		name := strings.ReplaceAll(m.Name, ".", "_")
		if m.Unit == "s" {
			name += "_seconds"
		}
		switch data := m.Data.(type) {
		case metricdata.Histogram[float64]:
			names = append(names, name+"_bucket", name+"_sum", name+"_count")
		case metricdata.Sum[int64]:
			if data.IsMonotonic {
				name += "_total"
			}
			names = append(names, name)
		}
	}
	return names
}

// The alerts and the dashboard use what is reported, and everything that is reported is in one of them or
// says more than is needed there.
func TestAlertsAndDashboard(t *testing.T) {
	t.Parallel()
	names := reported(t)
	used := signals.Rules(t, rulesFile, testsFiles, names)
	used = append(used, signals.Dashboard(t, "../../docs/observability/dashboard.json", names)...)
	signals.Shown(t, names, used, "etcdkit_claim_duration_seconds", "etcdkit_execute_duration_seconds", "etcdkit_release_duration_seconds", "etcdkit_session_renewal_age_seconds")
}
