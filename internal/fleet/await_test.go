package fleet_test

import (
	"context"
	"path"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
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
