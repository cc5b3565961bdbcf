package members_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdkit/etcdkit/internal/members"
	"github.com/etcdkit/etcdkit/internal/proof/procs"
)

func ctxT(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// etcd starts three members, each a process.
func etcd(t *testing.T) *procs.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("a stopped process takes seconds to be noticed")
	}
	c, err := procs.Start(ctxT(t), procs.Options{Binary: os.Args[0], Dir: t.TempDir(), Members: 3, Env: []string{roleEnv + "=etcd"}})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// client returns a client of all members, with the settings of the documentation.
func client(t *testing.T, c *procs.Cluster, configure ...func(*clientv3.Config)) *clientv3.Client {
	t.Helper()
	config := clientv3.Config{Endpoints: c.Endpoints(), Logger: zap.NewNop(), DialTimeout: 5 * time.Second, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second}
	for _, f := range configure {
		f(&config)
	}
	client, err := clientv3.New(config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// session returns how a session calls etcd by a client, and its log.
func session(t *testing.T, client *clientv3.Client) (*members.Etcd, *observer.ObservedLogs) {
	t.Helper()
	core, log := observer.New(zapcore.DebugLevel)
	e := members.Of(client, zap.New(core), nil)
	t.Cleanup(e.Close)
	return e, log
}

// stop stops a member until the test ends.
func stop(t *testing.T, c *procs.Cluster, i int) {
	t.Helper()
	require.NoError(t, c.Member(i).Pause())
	t.Cleanup(func() { _ = c.Member(i).Resume() })
}

// follower returns a member that does not lead.
func follower(t *testing.T, c *procs.Cluster) int {
	t.Helper()
	leader, err := c.WaitLeader(ctxT(t))
	require.NoError(t, err)
	return (leader + 1) % 3
}

// longest has callers put in a loop until until is done, each repeating what is unanswered, and returns the
// longest time that one put took with its repetitions.
func longest(t *testing.T, kv clientv3.KV, callers int, until <-chan struct{}) time.Duration {
	t.Helper()
	var mu sync.Mutex
	var most time.Duration
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-until:
					return
				default:
				}
				begun := time.Now()
				for {
					call, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					_, err := kv.Put(clientv3.WithRequireLeader(call), fmt.Sprintf("caller/%d", i), fmt.Sprint(n))
					cancel()
					if err == nil || t.Context().Err() != nil {
						break
					}
					time.Sleep(10 * time.Millisecond)
				}
				mu.Lock()
				most = max(most, time.Since(begun))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return most
}

func TestStoppedFollower(t *testing.T) {
	t.Parallel()
	c := etcd(t)
	e, log := session(t, client(t, c))
	_, err := e.Put(ctxT(t), "k", "1")
	require.NoError(t, err)
	stop(t, c, follower(t, c))
	done := make(chan struct{})
	time.AfterFunc(6*time.Second, func() { close(done) })
	most := longest(t, e, 6, done)
	t.Logf("the longest put with its repetitions took %v", most)
	require.Less(t, most, 2*time.Second, "and a call without this takes 5 s")
	require.Equal(t, 1, log.FilterMessageSnippet("does not answer while others do").Len(), "the stopped member, and no other: %v", log.All())
}

func TestStoppedLeader(t *testing.T) {
	t.Parallel()
	c := etcd(t)
	e, log := session(t, client(t, c))
	_, err := e.Put(ctxT(t), "k", "1")
	require.NoError(t, err)
	leader, err := c.WaitLeader(ctxT(t))
	require.NoError(t, err)
	stop(t, c, leader)
	done := make(chan struct{})
	time.AfterFunc(8*time.Second, func() { close(done) })
	most := longest(t, e, 6, done)
	t.Logf("the longest put with its repetitions took %v", most)
	require.Less(t, most, 4500*time.Millisecond, "an election takes two seconds at most, and a call without this waits 7 s for the dead leader")
	require.Equal(t, 1, log.FilterMessageSnippet("does not answer while others do").Len(), "%v", log.All())
}
