package share

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// N14: each rule of what a process may do during an outage.
func TestDecide(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		f    Facts
		want Verdict
	}{
		{"etcd answers", Facts{Trusted: true, Limit: 10, Sessions: 3, Weight: 1}, Ask},
		{"etcd is silent, and the lease is trusted: permits of this process are valid", Facts{Trusted: true, Outage: true, Limit: 10, Sessions: 3, Weight: 1}, Ask},
		{"the lease is lost, and etcd may answer: a pause of the process", Facts{Limit: 10, Sessions: 3, Weight: 1}, Ask},
		{"a share", Facts{Outage: true, Limit: 10, Sessions: 3, Weight: 1}, Run},
		{"the last place of a share", Facts{Outage: true, Limit: 10, Sessions: 3, Running: 2, Weight: 1}, Run},
		{"a share in use", Facts{Outage: true, Limit: 10, Sessions: 3, Running: 3, Weight: 1}, Refuse},
		{"work from before the outage", Facts{Outage: true, Limit: 10, Sessions: 3, Permits: 3, Weight: 1}, Refuse},
		{"more work from before than the share", Facts{Outage: true, Limit: 10, Sessions: 3, Permits: 7, Weight: 1}, Refuse},
		{"both", Facts{Outage: true, Limit: 10, Sessions: 3, Permits: 1, Running: 1, Weight: 1}, Run},
		{"a weight that fits", Facts{Outage: true, Limit: 10, Sessions: 3, Weight: 3}, Run},
		{"a weight that does not", Facts{Outage: true, Limit: 10, Sessions: 3, Running: 1, Weight: 3}, Refuse},
		{"sessions were never counted", Facts{Outage: true, Limit: 10, Weight: 1}, Refuse},
		{"more sessions than permits", Facts{Outage: true, Limit: 5, Sessions: 50, Weight: 1}, Refuse},
		{"paused", Facts{Outage: true, Sessions: 1, Weight: 1}, Refuse},
		{"healed, with work under the share", Facts{Trusted: true, Limit: 10, Sessions: 3, Running: 1, Weight: 1}, Drain},
		{"healed, and silent again", Facts{Trusted: true, Outage: true, Limit: 10, Sessions: 3, Running: 1, Weight: 1}, Drain},
		{"healed, and that has permits", Facts{Trusted: true, Limit: 10, Sessions: 3, Permits: 1, Weight: 1}, Ask},
	} {
		require.Equal(t, c.want, c.f.Decide(), c.name)
	}
}

// TestSizesFit: the shares of all sessions together are at most the limit.
func TestSizesFit(t *testing.T) {
	t.Parallel()
	for limit := range int64(60) {
		for sessions := int64(1); sessions < 60; sessions++ {
			require.LessOrEqual(t, Facts{Limit: limit, Sessions: sessions}.Size()*sessions, limit)
		}
	}
}
