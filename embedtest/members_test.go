package embedtest

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

func leaderOf(t *testing.T, c *Cluster) int {
	t.Helper()
	i, err := c.WaitLeader(within(t, patience))
	require.NoError(t, err)
	return i
}

func TestMoveLeader(t *testing.T) {
	ownServersOnly(t)
	t.Parallel()
	c := Start(t, &Options{Members: 3})
	from := leaderOf(t, c)
	to := (from + 1) % 3
	require.NoError(t, c.MoveLeader(within(t, patience), to))
	require.Equal(t, to, c.Leader())
	put(t, c.Client(), "k", "1")
	require.NoError(t, c.MoveLeader(within(t, patience), to), "it leads already")
	require.Error(t, c.MoveLeader(within(t, patience), 3))
}

// etcd gives up a transfer to a member that does not answer, and does not report that. MoveLeader begins
// another one, which succeeds when the member answers again.
func TestMoveLeaderBeginsAgain(t *testing.T) {
	ownServersOnly(t)
	t.Parallel()
	begun := make(chan struct{}, 100)
	count := zap.Hooks(func(e zapcore.Entry) error {
		if e.Message == "leadership transfer starting" {
			select {
			case begun <- struct{}{}:
			default:
			}
		}
		return nil
	})
	log := zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(io.Discard), zapcore.InfoLevel)
	c := Start(t, &Options{Members: 3, Logger: zap.New(log, count)})
	to := (leaderOf(t, c) + 1) % 3
	require.NoError(t, c.CutPeers(to))
	ctx, cancel := context.WithCancel(within(t, patience))
	defer cancel()
	moved := make(chan error, 2)
	go func() { moved <- c.MoveLeader(ctx, to) }()
	for range 2 {
		select {
		case <-begun:
		case err := <-moved:
			require.FailNow(t, "it has returned", "%v", err)
		case <-time.After(patience):
			require.FailNow(t, "it does not begin again")
		}
	}
	require.NoError(t, c.HealPeers(to))
	require.NoError(t, <-moved)
	require.Equal(t, to, c.Leader())

	require.NoError(t, c.CutPeers((to+1)%3))
	go func() { moved <- c.MoveLeader(ctx, (to+1)%3) }()
	<-begun
	cancel()
	require.ErrorIs(t, <-moved, context.Canceled)
}

func TestCrashAndRestartKeepDataAndAddress(t *testing.T) {
	ownServersOnly(t)
	t.Parallel()
	c := Start(t, nil)
	put(t, c.Client(), "k", "1")
	eps := c.Endpoints()
	cl := c.NewClient(t, nil)
	ch := watching(t, cl.Client, "k")

	require.NoError(t, c.Crash(0))
	_, err := cl.Put(within(t, 50*time.Millisecond), "k", "2")
	require.Error(t, err)
	require.Equal(t, -1, c.Leader())
	require.NoError(t, c.Crash(0), "crashed already")

	require.NoError(t, c.Restart(within(t, patience), 0))
	require.Equal(t, eps, c.Endpoints())
	require.Equal(t, "1", value(t, c, "k"))
	put(t, cl.Client, "k", "3")
	for got := ""; got != "3"; { // etcd's client may first deliver older events
		for _, ev := range next(t, ch).Events {
			got = string(ev.Kv.Value)
		}
	}
}

// F67: a stop transfers the leadership; after a crash, the others elect a leader.
func TestCrashAndStopOfTheLeader(t *testing.T) {
	ownServersOnly(t)
	t.Parallel()
	for name, stop := range map[string]func(*Cluster, int) error{"crash": (*Cluster).Crash, "stop": (*Cluster).Stop} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := Start(t, &Options{Members: 3})
			put(t, c.Client(), "k", "1")
			old := leaderOf(t, c)
			var atEnd uint64
			dying := c.members[old].running().etcd.Server
			require.NoError(t, stop(c, old))
			atEnd = dying.Lead()
			handedOver := atEnd != uint64(dying.MemberID())
			require.Equal(t, name == "stop", handedOver)

			require.NotEqual(t, old, leaderOf(t, c))
			cl := c.NewClient(t, nil)
			require.NoError(t, waitRead(within(t, patience), cl.Client))
			put(t, cl.Client, "k", "2")
			require.NoError(t, c.Restart(within(t, patience), old))
			resp, err := c.NewClient(t, &ClientOptions{Endpoints: c.Endpoints()[old : old+1]}).Get(within(t, patience), "k")
			require.NoError(t, err)
			require.Equal(t, "2", string(resp.Kvs[0].Value), "the member caught up")
		})
	}
}

func TestRestartOfAllMembers(t *testing.T) {
	ownServersOnly(t)
	t.Parallel()
	c := Start(t, &Options{Members: 3})
	put(t, c.Client(), "k", "1")
	for i := range 3 {
		require.NoError(t, c.Crash(i))
	}
	// F66: one member alone does not become ready. Neither Restart nor Close hangs.
	require.ErrorIs(t, c.Restart(within(t, 100*time.Millisecond), 0), context.DeadlineExceeded)
	require.NoError(t, c.Restart(within(t, patience), 0, 1, 2))
	require.Equal(t, "1", value(t, c, "k"))
}

// A list of members that is empty by mistake restarts nothing, and says so.
func TestRestartOfNoMember(t *testing.T) {
	ownServersOnly(t)
	t.Parallel()
	c := Start(t, nil)
	require.NoError(t, c.Crash(0))
	require.ErrorContains(t, c.Restart(within(t, patience)), "no members are given")
	require.NoError(t, c.Restart(within(t, patience), 0))
}

// F66: etcd's Close hangs for ever for a member that never became ready.
func TestCloseOfAMemberThatIsNotReady(t *testing.T) {
	ownServersOnly(t)
	t.Parallel()
	c, err := New(t.Context(), &Options{Members: 3})
	require.NoError(t, err)
	for i := range 3 {
		require.NoError(t, c.Crash(i))
	}
	require.ErrorIs(t, c.Restart(within(t, 50*time.Millisecond), 0), context.DeadlineExceeded)
	require.NoError(t, result(t, async(c.Close)))
}

func TestNewStopsWhatItStartedWhenItsContextEnds(t *testing.T) {
	ownServersOnly(t)
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := New(ctx, &Options{Members: 3})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestCutPeersIsolatesAMember(t *testing.T) {
	ownServersOnly(t)
	t.Parallel()
	for _, who := range []string{"leader", "follower"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			c := Start(t, &Options{Members: 3})
			put(t, c.Client(), "k", "1")
			i := leaderOf(t, c)
			if who == "follower" {
				i = (i + 1) % 3
			}
			inside := c.NewClient(t, &ClientOptions{Endpoints: c.Endpoints()[i : i+1]})
			require.NoError(t, waitRead(within(t, patience), inside.Client))

			require.NoError(t, c.CutPeers(i))
			_, err := inside.Get(within(t, 300*time.Millisecond), "k")
			require.Error(t, err, "a linearizable read needs a majority")
			resp, err := inside.Get(within(t, patience), "k", clientv3.WithSerializable())
			require.NoError(t, err, "its clients still reach it")
			require.Equal(t, "1", string(resp.Kvs[0].Value))

			var other int
			require.Eventually(t, func() bool { other = leaderOf(t, c); return other != i }, patience, pollEvery)
			outside := c.NewClient(t, &ClientOptions{Endpoints: c.Endpoints()[other : other+1]})
			require.NoError(t, waitRead(within(t, patience), outside.Client))
			put(t, outside.Client, "k", "2")
		})
	}
}

func TestHealPeers(t *testing.T) {
	ownServersOnly(t)
	t.Parallel()
	c := Start(t, &Options{Members: 3})
	i := (leaderOf(t, c) + 1) % 3
	inside := c.NewClient(t, &ClientOptions{Endpoints: c.Endpoints()[i : i+1]})
	require.NoError(t, c.CutPeers(i))
	_, err := inside.Get(within(t, 300*time.Millisecond), "k")
	require.Error(t, err)
	require.NoError(t, c.HealPeers(i))
	require.NoError(t, waitRead(within(t, patience), inside.Client))
	require.Error(t, c.CutPeers(-1))
}

// F68: a lease renewal at a follower that is cut off still reaches the leader, over HTTP, for
// as long as the follower knows the leader.
func TestCutPeersLetsLeaseRenewalsPass(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for an election of a slow cluster: 6 s")
	}
	t.Parallel()
	c := Start(t, &Options{Members: 3, HeartbeatInterval: 50 * time.Millisecond, ElectionTimeout: 3 * time.Second})
	id := grant(t, c.Client(), 60)
	i := (leaderOf(t, c) + 1) % 3
	inside := c.NewClient(t, &ClientOptions{Endpoints: c.Endpoints()[i : i+1]})
	_, err := inside.KeepAliveOnce(within(t, patience), id)
	require.NoError(t, err)

	require.NoError(t, c.CutPeers(i))
	_, err = inside.KeepAliveOnce(within(t, patience), id)
	require.NoError(t, err, "past raft")

	server := c.members[i].running().etcd.Server
	require.Eventually(t, func() bool { return server.Lead() == 0 }, patience, pollEvery)
	_, err = inside.KeepAliveOnce(within(t, 100*time.Millisecond), id)
	require.Error(t, err, "no leader to forward to any more")
}

func TestCutOutlivesARestart(t *testing.T) {
	t.Parallel()
	c := Start(t, &Options{Members: 3})
	i := (leaderOf(t, c) + 1) % 3
	require.NoError(t, c.CutPeers(i))
	require.Error(t, c.Restart(within(t, 500*time.Millisecond), i))
	for j := range 3 {
		require.NoError(t, c.Crash(j)) // only the Cluster value still knows the cut
	}
	require.NoError(t, c.Restart(within(t, patience), (i+1)%3, (i+2)%3))
	require.Error(t, c.Restart(within(t, 500*time.Millisecond), i))
	require.NoError(t, c.HealPeers(i))
	require.NoError(t, c.Restart(within(t, patience), i))
}
