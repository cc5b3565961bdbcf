package history_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

var ctxT = testkit.Context

// TestTap: every write below the prefix and nothing else, in etcd's words.
func TestTap(t *testing.T) {
	t.Parallel()
	c := embedtest.Shared(t)
	ctx, prefix, r := ctxT(t), c.Prefix(t), history.NewRecorder()
	_, err := c.Client().Put(ctx, prefix+"old", "0")
	require.NoError(t, err)
	tap, err := history.StartTap(ctx, r, prefix, c.Client())
	require.NoError(t, err)
	lease, err := c.Client().Grant(ctx, 60)
	require.NoError(t, err)
	_, err = c.Client().Put(ctx, prefix+"a", "1", clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	_, err = c.Client().Txn(ctx).Then(clientv3.OpPut(prefix+"\xff", "2"), clientv3.OpPut(prefix+"a", "3")).Commit()
	require.NoError(t, err)
	_, err = c.Client().Delete(ctx, prefix+"a")
	require.NoError(t, err)
	require.NoError(t, tap.Complete(ctx))
	tap.Close()

	h := recorded(t, r)
	var got []string
	for _, commit := range h.Commits() {
		for _, e := range commit.Events {
			if string(e.KV.Key) != prefix+history.TapMarker+"end" {
				got = append(got, fmt.Sprintf("%v %s %q=%s v%d %v %v", commit.Listed, e.Kind, string(e.KV.Key)[len(prefix):], e.KV.Value, e.KV.Version, e.KV.Lease == int64(lease.ID), e.KV.Create <= e.Rev))
			}
		}
	}
	require.Equal(t, []string{
		`true put "old"=0 v1 false true`,
		`false put "a"=1 v1 true true`,
		`false put "\xff"=2 v1 false true`,
		`false put "a"=3 v2 false true`,
		`false delete "a"=3 v2 false true`,
	}, got)
	complete := h.Marks(history.MarkTapComplete)
	require.Len(t, complete, 1)
	require.Equal(t, h.Commits()[len(h.Commits())-1].Rev, complete[0].Rev)
}

// TestTapWithHoles: a watch that was away while etcd was compacted has a hole.
// Another one fills it; without one the tap reports the gap.
func TestTapWithHoles(t *testing.T) {
	t.Parallel()
	for _, watches := range []int{1, 2} {
		t.Run(fmt.Sprint(watches), func(t *testing.T) {
			t.Parallel()
			c := embedtest.Start(t, nil)
			if c.External() {
				t.Skip("it compacts what others watch")
			}
			ctx, prefix, r := ctxT(t), c.Prefix(t), history.NewRecorder()
			away := c.NewClient(t, nil)
			clients := []*clientv3.Client{away.Client, c.Client()}[:watches]
			tap, err := history.StartTap(ctx, r, prefix, clients...)
			require.NoError(t, err)
			defer tap.Close()
			put := func(from, to int) {
				for i := from; i < to; i++ {
					_, err := c.Client().Put(ctx, prefix+"a", fmt.Sprint(i))
					require.NoError(t, err)
				}
			}
			put(0, 3)
			require.NoError(t, tap.Complete(ctx))
			away.Cut()
			put(3, 6)
			_, err = c.Compact(ctx)
			require.NoError(t, err)
			away.Heal()
			put(6, 9)

			for wait := 2 * time.Second; ; wait *= 2 { // a busy machine may need longer to write the tap's own key
				short, cancel := context.WithTimeout(ctx, wait)
				err = tap.Complete(map[int]context.Context{1: short, 2: ctx}[watches])
				cancel()
				if watches == 2 || err == nil || ctx.Err() != nil || strings.Contains(err.Error(), "nothing is known") {
					break
				}
			}
			h := recorded(t, r)
			gap := len(h.Marks(history.MarkTapGap)) > 0
			if watches == 1 {
				require.ErrorContains(t, err, "nothing is known of revisions after")
				require.True(t, gap)
				return
			}
			require.NoError(t, err)
			require.False(t, gap)
			var values string
			for _, commit := range h.Commits() {
				for _, e := range commit.Events {
					if string(e.KV.Key) == prefix+"a" && e.Kind == history.KindPut {
						values += string(e.KV.Value)
					}
				}
			}
			require.Equal(t, "012345678", values, "each once and in order")
		})
	}
}

// TestTapThroughCrash: the member of a watch dies and comes back.
func TestTapThroughCrash(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, &embedtest.Options{Members: 3})
	if c.External() {
		t.Skip("it breaks a member")
	}
	ctx, prefix, r := ctxT(t), c.Prefix(t), history.NewRecorder()
	var clients []*clientv3.Client
	for i := range 3 {
		clients = append(clients, c.NewClient(t, &embedtest.ClientOptions{Endpoints: c.Endpoints()[i : i+1]}).Client)
	}
	tap, err := history.StartTap(ctx, r, prefix, clients...)
	require.NoError(t, err)
	defer tap.Close()
	want := ""
	put := func(v string) {
		_, err := c.Client().Put(ctx, prefix+"a", v)
		require.NoError(t, err)
		want += v
	}
	put("0")
	for i := range 3 {
		require.NoError(t, c.Crash(i))
		_, err := c.WaitLeader(ctx)
		require.NoError(t, err)
		put(fmt.Sprint(i + 1))
		_, err = c.Client().Compact(ctx, 2)
		_ = err // compacted already
		require.NoError(t, c.Restart(ctx, i))
	}
	require.NoError(t, tap.Complete(ctx))
	values := ""
	for _, commit := range recorded(t, r).Commits() {
		for _, e := range commit.Events {
			if string(e.KV.Key) == prefix+"a" {
				values += string(e.KV.Value)
			}
		}
	}
	require.Equal(t, want, values)
}
