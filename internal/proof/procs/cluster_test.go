package procs_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/proof/procs"
)

func ctxT(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// options run the test binary as the server.
func options(t *testing.T, members int) procs.Options {
	return procs.Options{
		Binary: os.Args[0], Dir: t.TempDir(), Members: members, Env: role("etcd"),
		HeartbeatInterval: 20 * time.Millisecond, ElectionTimeout: 200 * time.Millisecond,
	}
}

func start(t *testing.T, members int) *procs.Cluster {
	t.Helper()
	c, err := procs.Start(ctxT(t), options(t, members))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func leader(t *testing.T, c *procs.Cluster) int {
	t.Helper()
	i, err := c.WaitLeader(ctxT(t))
	require.NoError(t, err)
	return i
}

func TestCrashAndRestart(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	_, err := c.Client().Put(ctxT(t), "k", "1")
	require.NoError(t, err)
	first := leader(t, c)
	old := c.Member(first)
	c.Crash(first)
	require.True(t, old.Ended())
	require.NotEqual(t, first, leader(t, c), "the others elect")
	_, err = c.Client().Put(ctxT(t), "k", "2")
	require.NoError(t, err)
	require.NoError(t, c.Restart(ctxT(t), first))
	require.NotEqual(t, old.PID(), c.Member(first).PID())

	for i := range 3 {
		c.Crash(i)
	}
	require.Equal(t, -1, c.Leader(ctxT(t)))
	require.NoError(t, c.Restart(ctxT(t), 0, 1, 2))
	resp, err := c.Client().Get(ctxT(t), "k")
	require.NoError(t, err)
	require.Equal(t, "2", string(resp.Kvs[0].Value), "what was acknowledged is there")
}

func TestPausedLeader(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	first := leader(t, c)
	require.NoError(t, c.Member(first).Pause())
	second := leader(t, c)
	require.NotEqual(t, first, second)
	require.NoError(t, c.Member(first).Resume())
	require.Eventually(t, func() bool { return c.Says(ctxT(t), first) == second }, soon, 5*time.Millisecond, "it follows")
	third := 3 - first - second
	require.NoError(t, c.MoveLeader(ctxT(t), third))
	require.Equal(t, third, leader(t, c))
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	o := options(t, 1)
	o.Args = []string{"--no-such-flag"}
	_, err := procs.Start(ctxT(t), o)
	require.ErrorContains(t, err, "ended by itself")
	require.ErrorContains(t, err, "flag provided but not defined: -no-such-flag", "its own words are shown")

	o = options(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = procs.Start(ctx, o)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// With users, etcd's Status needs one: without it no leader is ever found, and no member is ever ready.
func TestLeaderWithUsers(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	require.NoError(t, c.EnableAuth(ctxT(t), "root", "secret"))
	first := leader(t, c)
	require.NoError(t, c.Member(first).Pause())
	require.NotEqual(t, first, leader(t, c))
	require.NoError(t, c.Member(first).Resume())
	require.NoError(t, c.Restart(ctxT(t), first))
	require.NoError(t, c.MoveLeader(ctxT(t), first))
	_, err := c.Client().Put(ctxT(t), "k", "1")
	require.NoError(t, err)
}
