package soak

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/proof/procs"
)

// A short soak on an etcd in a process of its own: everything is measured, and nothing fails. Whether it is flat is for an
// hour of it (make soak).
func TestRealEtcd(t *testing.T) { //nolint:paralleltest // it would be in the way of TestDay
	if testing.Short() {
		t.Skip("outcomes expire in real time")
	}
	cluster, err := procs.Start(t.Context(), procs.Options{Binary: os.Args[0], Dir: t.TempDir(), Env: []string{roleEnv + "=etcd"}, Args: Flags(time.Second)})
	require.NoError(t, err)
	defer cluster.Close()
	tally := NewTally()
	rests, err := Config{
		Cluster: cluster, Processes: 2, Pace: Pace{Every: 10 * time.Millisecond, Retain: time.Second, Ticks: 100 * time.Millisecond},
		Work: []time.Duration{2 * time.Second, 2 * time.Second}, Rest: 2 * time.Second, Say: t.Logf,
	}.Run(t.Context(), tally)
	require.NoError(t, err)
	_, failed, first := tally.Total()
	require.Zero(t, failed, "%v", first)
	require.Len(t, tally.Kinds(), 7, "each kind of work was done: %v", tally.Kinds())
	require.Len(t, rests, 2)
	for _, s := range rests {
		for _, q := range quantities {
			require.Positive(t, q.of(s), q.name)
		}
	}
}
