package otelkit_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/etcdkit/etcdkit/observe"
	"github.com/etcdkit/etcdkit/observe/otelkit"
)

const (
	rulesFile = "../../docs/observability/alerts.yaml"
	testsFile = "../../docs/observability/alerts_test.yaml"
)

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

// Every metric of the alerts is reported, and each rule has a test in which it fires and one in which it
// does not.
func TestAlerts(t *testing.T) {
	t.Parallel()
	rules, err := os.ReadFile(rulesFile)
	require.NoError(t, err)
	tests, err := os.ReadFile(testsFile)
	require.NoError(t, err)
	names := reported(t)
	for _, line := range strings.Split(string(rules), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		for _, metric := range regexp.MustCompile(`\betcdkit_[a-z_]+(_total|_count|_bucket|_sum|_active)\b`).FindAllString(line, -1) {
			require.Contains(t, names, metric)
		}
	}
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(rules), -1)
	require.GreaterOrEqual(t, len(alerts), 15)
	tested := regexp.MustCompile(`alertname: (\w+)\n( +exp_alerts)?`).FindAllStringSubmatch(string(tests), -1)
	for _, a := range alerts {
		for _, fires := range []bool{true, false} {
			require.True(t, slices.ContainsFunc(tested, func(m []string) bool { return m[1] == a[1] && (m[2] != "") == fires }), "%s: no test in which it fires is %v", a[1], fires)
		}
	}
}

// The unit tests of the alerts pass, where promtool is installed.
func TestAlertsByPromtool(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed: `make alerts` says how to get it")
	}
	for _, args := range [][]string{{"check", "rules", rulesFile}, {"test", "rules", testsFile}} {
		out, err := exec.Command(promtool, args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}
