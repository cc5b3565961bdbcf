package fleet_test

import (
	"context"
	"path"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Await returns when the state is complete up to a revision, also of a change elsewhere; and with the reason
// if nothing can be read.
func TestAwait(t *testing.T) {
	t.Parallel()
	f, ctx := testkit.Shared(t), testkit.Context(t)
	s, client := f.Session(nil)
	fl, _ := following(t, f, s)
	require.NoError(t, fl.Await(ctx, 1))
	for range 3 {
		resp, err := client.Put(ctx, f.Root+"/elsewhere", "x")
		require.NoError(t, err)
		require.NoError(t, fl.Await(ctx, resp.Header.Revision))
		require.GreaterOrEqual(t, fl.Meta().Revision, resp.Header.Revision)
	}
	gone, leave := context.WithCancel(ctx)
	leave()
	require.ErrorIs(t, fl.Await(gone, 1<<60), context.Canceled)

	space, err := keyspace.New(f.Root, path.Base(s.NamespacePrefix()))
	require.NoError(t, err)
	c := f.NewClient(t, nil)
	c.Cut()
	cut := fleet.New(c.KV, c.Watcher, space, fleet.Options{Probe: time.Second, Refresh: time.Hour, Logger: zap.NewNop(), Now: time.Now})
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- cut.Run(running) }()
	defer func() { stop(); <-ended }()
	require.Error(t, cut.Await(ctx, 1))
	require.NoError(t, ctx.Err(), "that is not for want of time")
	c.Heal()
	require.Eventually(t, func() bool { return cut.Await(ctx, 1) == nil }, testkit.Soon, 10*time.Millisecond)
}

// What was awaited is in the next View, also in a queue that is too large to be settled for each one.
func TestAwaitALargeQueue(t *testing.T) {
	t.Parallel()
	f, ctx := testkit.Shared(t), testkit.Context(t)
	s, client := f.Session(nil)
	fl, space := following(t, f, s)
	crowd := space.Queue(keyspace.Semaphore, "crowd")
	_, err := client.Put(ctx, crowd.Limit, record.Limit{Limit: 1}.Encode())
	require.NoError(t, err)
	lease, err := client.Grant(ctx, 300)
	require.NoError(t, err)
	const before, rounds = 1100, 20
	put := func(from, to int) int64 {
		var ops []clientv3.Op
		for n := from; n < to; n++ {
			ops = append(ops, clientv3.OpPut(crowd.Slot(keyspace.Slot{Lease: int64(lease.ID), Number: n, Weight: 1}), record.Request{Nonce: "n", AtMS: 1}.Encode(), clientv3.WithLease(lease.ID)))
		}
		resp, err := client.Txn(ctx).Then(ops...).Commit()
		require.NoError(t, err)
		return resp.Header.Revision
	}
	for n := 0; n < before; n += 100 {
		put(n, n+100)
	}
	for n := range rounds {
		require.NoError(t, fl.Await(ctx, put(before+n, before+n+1)))
		fl.View(func(s *fleet.State, _ fleet.Meta) {
			of := s.Queues[fleet.QueueID{Kind: keyspace.Semaphore, Name: "crowd"}]
			require.Equal(t, before+n, of.Now.Waiting)
		})
	}
}
