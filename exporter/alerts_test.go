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

// The alerts and the dashboard use what is published, and everything that is published is in one of them or
// says more than is needed there.
func TestAlertsAndDashboard(t *testing.T) {
	t.Parallel()
	names := exporter.Metrics()
	used := signals.Rules(t, observability+"fleet_alerts.yaml", observability+"fleet_alerts_test.yaml", names)
	used = append(used, signals.Dashboard(t, observability+"fleet_dashboard.json", names)...)
	signals.Shown(t, names, used, "etcdkit_exporter_lists_total", "etcdkit_exporter_revision")
}

// The files for Docker Compose name files that exist.
func TestCompose(t *testing.T) {
	t.Parallel()
	signals.Compose(t, observability+"compose/compose.yaml")
}

// The rule for a job of one's own, on the page, has metrics that are published.
func TestRuleOfThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/observability.md")
	require.NoError(t, err)
	for _, b := range pagecode.Parse(string(page)).Blocks {
		if strings.HasPrefix(b.Text, "time() - ") {
			signals.Query(t, b.Text, exporter.Metrics())
			return
		}
	}
	t.Error("the page has no such rule")
}
