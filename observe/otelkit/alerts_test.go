package otelkit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

// dashboard is what a test needs of the dashboard of Grafana.
type dashboard struct {
	Panels []struct {
		ID                 int
		Title, Description string
		Targets            []struct{ Expr string }
	}
}

// Every metric of the dashboard is reported, each metric that is reported is in the dashboard or in an
// alert, and each panel says which question it answers. Where promtool is installed, the queries are
// checked.
func TestDashboard(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/observability/dashboard.json")
	require.NoError(t, err)
	rules, err := os.ReadFile(rulesFile)
	require.NoError(t, err)
	var d dashboard
	require.NoError(t, json.Unmarshal(text, &d))
	names, seen, queries := reported(t), map[int]bool{}, "groups:\n  - name: dashboard\n    rules:\n"
	for _, p := range d.Panels {
		require.False(t, seen[p.ID], "the ID of panel %q", p.Title)
		seen[p.ID] = true
		require.NotEmpty(t, p.Description, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			metrics := regexp.MustCompile(`\b(etcdkit_[a-z_]+)\{`).FindAllStringSubmatch(target.Expr, -1)
			require.NotEmpty(t, metrics, target.Expr)
			for _, m := range metrics {
				require.Contains(t, names, m[1])
			}
			expr := strings.NewReplacer("$__rate_interval", "5m", "$namespace", "x").Replace(target.Expr)
			require.NotContains(t, expr, "$", "a variable of the dashboard")
			queries += fmt.Sprintf("      - {record: panel%d, expr: %q}\n", p.ID, expr)
		}
	}
	for _, name := range names {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		if !strings.Contains(string(text), base) && !strings.Contains(string(rules), base) {
			require.Contains(t, []string{"etcdkit_release_duration_seconds", "etcdkit_claim_duration_seconds", "etcdkit_execute_duration_seconds", "etcdkit_session_renewal_age_seconds"}, base, "neither in the dashboard nor in an alert")
		}
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Log("promtool is not installed: the queries were not checked")
		return
	}
	file := filepath.Join(t.TempDir(), "queries.yaml")
	require.NoError(t, os.WriteFile(file, []byte(queries), 0o600))
	out, err := exec.Command(promtool, "check", "rules", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
}
