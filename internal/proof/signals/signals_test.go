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
