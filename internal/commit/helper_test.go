package commit_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

var ctxT = testkit.Context

// fixture is a process with a lease and a fence.
type fixture struct {
	t       *testing.T
	cluster *embedtest.Cluster
	client  *embedtest.Client
	prefix  string
	lease   clientv3.LeaseID
	fence   *commit.Fence
}

func newFixture(t *testing.T, c *embedtest.Cluster) *fixture {
	f := &fixture{t: t, cluster: c, client: c.NewClient(t, nil), prefix: c.Prefix(t)}
	resp, err := c.Client().Grant(ctxT(t), 60)
	require.NoError(t, err)
	f.lease = resp.ID
	f.fence, err = commit.Raise(ctxT(t), f.client, f.lease, f.presence(), "here")
	require.NoError(t, err)
	require.Equal(t, f.get(f.presence()).Kvs[0].CreateRevision, f.fence.Born())
	return f
}

func (f *fixture) presence() string { return f.prefix + "alive" }
func (f *fixture) key() string      { return f.prefix + "key" }

func (f *fixture) get(key string) *clientv3.GetResponse {
	f.t.Helper()
	resp, err := f.cluster.Client().Get(ctxT(f.t), key)
	require.NoError(f.t, err)
	return resp
}

func (f *fixture) exists(key string) bool { f.t.Helper(); return len(f.get(key).Kvs) > 0 }

var nonces atomic.Int64

// creation is one of f.key, with a nonce of its own.
func (f *fixture) creation() commit.Creation {
	nonce := fmt.Sprint("nonce", nonces.Add(1))
	return commit.Creation{Key: f.key(), Value: nonce, Mine: func(b []byte) bool { return string(b) == nonce }}
}

func (f *fixture) create(c commit.Creation) int64 {
	f.t.Helper()
	res, err := f.fence.Create(ctxT(f.t), c)
	require.NoError(f.t, err)
	require.Equal(f.t, f.get(c.Key).Kvs[0].CreateRevision, res.Token)
	return res.Token
}

// giveUp runs Create and ends its ctx as soon as the fault has struck.
func (f *fixture) giveUp(c commit.Creation, inj *embedtest.Injection) *commit.PendingError {
	f.t.Helper()
	ctx, cancel := context.WithCancel(ctxT(f.t))
	defer cancel()
	go func() { _ = inj.WaitHit(ctx); cancel() }()
	_, err := f.fence.Create(ctx, c)
	var pending *commit.PendingError
	require.ErrorAs(f.t, err, &pending)
	require.ErrorIs(f.t, err, context.Canceled)
	return pending
}
