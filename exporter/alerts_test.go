package exporter_test

import (
	"testing"

	"github.com/etcdkit/etcdkit/exporter"
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
