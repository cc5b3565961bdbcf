package signals

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Labels are not metrics, wherever they are in a query.
func TestMetricsIn(t *testing.T) {
	t.Parallel()
	for query, want := range map[string][]string{
		`sum by (etcdkit_name) (rate(etcdkit_acquire_duration_seconds_count{etcdkit_reason="full"}[5m]))`: {"etcdkit_acquire_duration_seconds_count"},
		`etcdkit_held / on (kind, name) etcdkit_limit > 0.9`:                                              {"etcdkit_held", "etcdkit_limit"},
		`label_replace(etcdkit_up, "etcdkit_x", "$1", "name", "(.*)")`:                                    {"etcdkit_up"},
		`up{job="etcd"}`: nil,
	} {
		require.Equal(t, want, metricsIn(query), query)
	}
}

// A row has a fault, an alert and a first step, once, and the section above it.
func TestRowsOf(t *testing.T) {
	t.Parallel()
	rows, wrong := rowsOf("# A page\n## Exporter and etcd\n| fault | alert | first step |\n|---|---|---|\n"+
		"| it is away | EtcdkitExporterDown F | look |\n|  | EtcdkitSeriesDropped F | look |\n| it is away | EtcdkitExporterDown F | look |\n", "url")
	require.Equal(t, map[string]string{"EtcdkitExporterDown": "url#exporter-and-etcd", "EtcdkitSeriesDropped": "url#exporter-and-etcd"}, rows)
	require.Len(t, wrong, 2)
}
