package exporter_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/exporter"
	"github.com/etcdkit/etcdkit/internal/proof/procs"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// M16: an exporter whose watch is at a member that hangs published a state that stood still, until keep-alive closed
// the connection after 13 s.
func TestMemberThatHangs(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a stopped process takes seconds to be noticed")
	}
	ctx := testkit.Context(t)
	etcd, err := procs.Start(ctx, procs.Options{Binary: os.Args[0], Dir: t.TempDir(), Members: 3, Env: []string{roleEnv + "=etcd"}})
	require.NoError(t, err)
	t.Cleanup(etcd.Close)
	leader, err := etcd.WaitLeader(ctx)
	require.NoError(t, err)
	following := following(t, etcd.Endpoints(), 16)

	const hangs = 6 * time.Second
	victim := etcd.Member((leader + 1) % 3)
	require.NoError(t, victim.Pause())
	t.Cleanup(func() { _ = victim.Resume() })
	most := make([]time.Duration, len(following))
	moved, last := make([]time.Time, len(following)), make([]float64, len(following))
	for begun := time.Now(); time.Since(begun) < hangs; time.Sleep(20 * time.Millisecond) {
		_, err := etcd.MemberClient(leader).Put(ctx, "/etcdkit/v1/hung/semaphore/x/limit", "1")
		require.NoError(t, err)
		for i, revision := range following {
			if now := revision(); now != last[i] || moved[i].IsZero() {
				last[i], moved[i] = now, time.Now()
			}
			most[i] = max(most[i], time.Since(moved[i]))
		}
	}
	t.Logf("the states stood still for at most %v", most)
	for _, d := range most {
		require.Less(t, d, hangs/2)
	}
}

// following starts exporters, each on a client of its own with the settings of the documentation, and returns what
// each publishes as its revision, once each has published one.
func following(t *testing.T, endpoints []string, n int) (revisions []func() float64) {
	for range n {
		client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop(), DialTimeout: 5 * time.Second, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second})
		require.NoError(t, err)
		e, err := exporter.New(client, "hung", nil)
		require.NoError(t, err)
		reg := prometheus.NewPedanticRegistry()
		reg.MustRegister(e)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = e.Run(ctx) }()
		t.Cleanup(func() { cancel(); <-ended; _ = client.Close() })
		revisions = append(revisions, func() float64 {
			families, err := reg.Gather()
			require.NoError(t, err)
			for _, f := range families {
				if f.GetName() == "etcdkit_exporter_revision" {
					return f.GetMetric()[0].GetGauge().GetValue()
				}
			}
			return 0
		})
	}
	for _, revision := range revisions {
		require.Eventually(t, func() bool { return revision() > 0 }, testkit.Soon, testkit.Soon/1000)
	}
	return revisions
}
