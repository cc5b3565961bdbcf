package exporter_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/exporter"
	"github.com/etcdkit/etcdkit/internal/proof/pagecode"
	"github.com/etcdkit/etcdkit/internal/proof/signals"
)

const observability = "../docs/observability/"

// published returns the metrics of the exporter, and those of processes that queries join with them.
func published() signals.Metrics {
	all := signals.Metrics(exporter.Metrics())
	of := []string{"etcdkit_namespace", "etcdkit_kind", "etcdkit_name", "etcdkit_result", "etcdkit_reason"}
	all["etcdkit_acquire_duration_seconds_count"], all["etcdkit_rate_calls_total"] = of, of
	return all
}

// The alerts and the dashboard use what is published, and everything that is published is in one of them or
// says more than is needed there.
func TestAlertsAndDashboard(t *testing.T) {
	t.Parallel()
	used := signals.Rules(t, observability+"fleet_alerts.yaml", []string{observability + "fleet_alerts_test.yaml", observability + "fleet_alerts_healthy_test.yaml", observability + "fleet_week_alerts_test.yaml"}, published())
	used = append(used, signals.Dashboard(t, observability+"fleet_dashboard.json", published())...)
	signals.Shown(t, exporter.Metrics(), used, "etcdkit_exporter_lists_total", "etcdkit_exporter_revision")
}

// Each alert has a row on the page, with the fault and the first step, to whose section it leads.
func TestRunbook(t *testing.T) {
	t.Parallel()
	signals.Runbook(t, "../docs/observability.md", "https://github.com/etcdkit/etcdkit/blob/main/docs/observability.md",
		map[string]string{"P": observability + "alerts.yaml", "F": observability + "fleet_alerts.yaml"})
}

// The files for Docker Compose name files that exist.
func TestCompose(t *testing.T) {
	t.Parallel()
	signals.Compose(t, observability+"compose/compose.yaml")
}

// The queries on the page have metrics that are published.
func TestQueriesOfThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/observability.md")
	require.NoError(t, err)
	queries := 0
	for _, b := range pagecode.Parse(string(page)).Blocks {
		if strings.HasPrefix(b.Text, "time() - ") || strings.HasPrefix(b.Text, "sum by ") {
			signals.Query(t, b.Text, published())
			queries++
		}
	}
	require.Equal(t, 2, queries)
}

// The panel of refused calls by permit has limiters, whose processes report another kind than the exporter, and not what
// is paused, where a division by 0 would hide all others.
func TestRefusedByPermit(t *testing.T) {
	t.Parallel()
	query := signals.Panel(t, observability+"fleet_dashboard.json", 16)
	series, want := map[string]string{}, map[string]string{}
	for name, limits := range map[string]map[string]int{
		"semaphore/charge": {"etcdkit_limit/semaphore": 3}, "semaphore/paused": {"etcdkit_limit/semaphore": 0},
		"limiter/api":     {"etcdkit_limit/limiter_total": 6, "etcdkit_limiter_default_limit/limiter": 2},
		"limiter/tenants": {"etcdkit_limiter_default_limit/limiter": 3}, "limiter/stopped": {"etcdkit_limit/limiter_total": 0},
	} {
		kind, name, _ := strings.Cut(name, "/")
		of := `etcdkit_namespace="pay", etcdkit_kind="` + kind + `", etcdkit_name="` + name + `"}`
		series[`etcdkit_acquire_duration_seconds_count{etcdkit_reason="full", etcdkit_result="refused", `+of] = "0+360x20"
		for metric, limit := range limits {
			metric, stored, _ := strings.Cut(metric, "/")
			series[metric+`{instance="e", `+strings.Replace(of, kind, stored, 1)] = fmt.Sprintf("%dx20", limit)
			if limit > 0 && (stored != "limiter" || len(limits) == 1) {
				want["{"+of] = fmt.Sprint(6 / float64(limit))
			}
		}
	}
	signals.Answers(t, query, series, want)
}
