package exporter_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/exporter"
	"github.com/etcdkit/etcdkit/internal/proof/pagecode"
	"github.com/etcdkit/etcdkit/internal/proof/signals"
)

const observability = "../docs/observability/"

// joined are the metrics of processes that queries join with the fleet's.
var joined = []string{"etcdkit_acquire_duration_seconds_count", "etcdkit_rate_calls_total"}

// The alerts and the dashboard use what is published, and everything that is published is in one of them or
// says more than is needed there.
func TestAlertsAndDashboard(t *testing.T) {
	t.Parallel()
	names := exporter.Metrics()
	used := signals.Rules(t, observability+"fleet_alerts.yaml", []string{observability + "fleet_alerts_test.yaml", observability + "fleet_alerts_healthy_test.yaml"}, names)
	used = append(used, signals.Dashboard(t, observability+"fleet_dashboard.json", append(joined, names...))...)
	signals.Shown(t, names, used, "etcdkit_exporter_lists_total", "etcdkit_exporter_revision")
}

// Each alert has a row on the page, with the fault and the first step, to whose section it leads.
func TestRunbook(t *testing.T) {
	t.Parallel()
	signals.Runbook(t, "../docs/observability.md", "https://github.com/etcdkit/etcdkit/blob/main/docs/observability.md",
		observability+"alerts.yaml", observability+"fleet_alerts.yaml")
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
			signals.Query(t, b.Text, append(joined, exporter.Metrics()...))
			queries++
		}
	}
	require.Equal(t, 2, queries)
}
