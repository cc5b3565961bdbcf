package chaos

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/check"
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// slowFor adds up for how long the probe has found etcd slow.
func slowFor(t *testing.T, rec *history.Recorder) (sum time.Duration) {
	t.Helper()
	h, err := rec.History()
	require.NoError(t, err)
	for _, e := range h.Events {
		if e.Kind == history.KindCount && e.Name == check.CountSlow {
			sum += time.Duration(e.N)
		}
	}
	return sum
}

// TestProbeLatency: a member that applies a write late, or a writer without an answer, makes
// etcd slow.
func TestProbeLatency(t *testing.T) {
	if testing.Short() {
		t.Skip("it measures seconds in which etcd is slow")
	}
	t.Parallel()
	c := embedtest.Start(t, &embedtest.Options{Members: 3})
	if c.External() {
		t.Skip("the external cluster is not this test's own")
	}
	for name, harm := range map[string]func(t *testing.T, writer *embedtest.Client) (mend func()){
		"a member": func(t *testing.T, _ *embedtest.Client) func() {
			leader, err := c.WaitLeader(t.Context())
			require.NoError(t, err)
			cut := (leader + 1) % 3
			require.NoError(t, c.CutPeers(cut))
			return func() { require.NoError(t, c.HealPeers(cut)) }
		},
		"the writer": func(_ *testing.T, writer *embedtest.Client) func() {
			writer.BlackHole()
			return writer.Heal
		},
	} {
		t.Run(name, func(t *testing.T) {
			writer, rec := c.NewClient(t, nil), history.NewRecorder()
			var members []*clientv3.Client
			for i := range 3 {
				members = append(members, c.NewClient(t, &embedtest.ClientOptions{Endpoints: c.Endpoints()[i : i+1]}).Client)
			}
			end := ProbeLatency(context.Background(), rec, writer.Client, members...)
			mend := harm(t, writer)
			time.Sleep(2 * time.Second) // how long it is slow is what is measured
			mend()
			end()
			require.GreaterOrEqual(t, slowFor(t, rec), time.Second)
		})
	}
}
