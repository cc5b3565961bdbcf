package members_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/procs"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/observe"
)

// process returns a session on a client of its own, with these hooks.
func process(t *testing.T, c *procs.Cluster, hooks ...observe.Hooks) *concurrency.Session {
	t.Helper()
	s, err := concurrency.NewSession(ctxT(t), client(t, c), "hung", &concurrency.SessionOptions{Hooks: hooks})
	require.NoError(t, err)
	return s
}

// A session that only waits has no call under way that would be late: its watch is asked.
func TestWaitersBesideAStoppedFollower(t *testing.T) {
	t.Parallel()
	c := etcd(t)
	holder := process(t, c)
	var held []*concurrency.Permit
	type grant struct {
		who int
		at  time.Time
		err error
	}
	const waiters = 8
	grants, waits := make(chan grant, waiters), make(chan observe.Waiting, 100*waiters) // one each 10 s
	for i := range waiters {
		name := fmt.Sprint("m", i)
		m, err := concurrency.NewMutex(holder, name)
		require.NoError(t, err)
		p, err := m.Lock(ctxT(t))
		require.NoError(t, err)
		held = append(held, p)
		waiter := process(t, c, testkit.Trace{Waiting: func(w observe.Waiting) { waits <- w }}.Hooks()...)
		m, err = concurrency.NewMutex(waiter, name)
		require.NoError(t, err)
		go func() {
			_, err := m.Lock(ctxT(t))
			grants <- grant{i, time.Now(), err}
		}()
	}
	for range waiters {
		testkit.Got(t, waits, "its watch has begun, and the queue was listed")
	}
	stop(t, c, follower(t, c))
	released := time.Now()
	for _, p := range held {
		require.NoError(t, p.Release(ctxT(t)))
	}
	for range held {
		g := <-grants
		require.NoError(t, g.err)
		t.Logf("%d is granted after %v", g.who, g.at.Sub(released))
		require.Less(t, g.at.Sub(released), 9*time.Second, "without this, when gRPC's keepalive closes the connection, after 13 s")
	}
}

// What is released stays released: a copy of a request that a stopped member has got, and sends on when it
// continues, is void. No release is reported as lost, and no queue waits for calls that hang.
func TestReleasedKeysStayReleased(t *testing.T) {
	t.Parallel()
	c := etcd(t)
	const rounds, callers = 6, 12
	procs := []*concurrency.Session{process(t, c), process(t, c), process(t, c)}
	for round := range rounds {
		victim := follower(t, c)
		if round%3 == 2 {
			var err error
			victim, err = c.WaitLeader(ctxT(t))
			require.NoError(t, err)
		}
		require.NoError(t, c.Member(victim).Pause())
		working, cancel := context.WithTimeout(ctxT(t), 3*time.Second)
		var wg sync.WaitGroup
		var mu sync.Mutex
		var gap time.Duration
		for i := range callers {
			sem, err := concurrency.NewSemaphore(procs[i%len(procs)], fmt.Sprintf("s%d", i), 3, nil)
			require.NoError(t, err)
			wg.Go(func() {
				for begun := time.Now(); working.Err() == nil; begun = time.Now() {
					p, err := sem.Acquire(ctxT(t))
					if err != nil {
						t.Errorf("acquire: %v", err)
						return
					}
					if err := p.Release(ctxT(t)); err != nil {
						t.Errorf("release: %v", err)
					}
					mu.Lock()
					gap = max(gap, time.Since(begun))
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		cancel()
		t.Logf("round %d: the longest acquire with its release took %v", round, gap)
		require.Less(t, gap, 4500*time.Millisecond, "a call without this takes 5 s")
		require.NoError(t, c.Member(victim).Resume())
		// What the member had got takes effect, if at all, as soon as it has caught up.
		require.Eventually(t, func() bool {
			_, err := c.MemberClient(victim).Get(ctxT(t), "caught up")
			return err == nil
		}, testkit.Soon, 10*time.Millisecond)
		time.Sleep(300 * time.Millisecond)
		left, err := c.Client().Get(ctxT(t), procs[0].NamespacePrefix()+"semaphore/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		require.NoError(t, err)
		for _, kv := range left.Kvs {
			if kv.Lease != 0 {
				t.Errorf("round %d: %s exists again", round, kv.Key)
			}
		}
	}
}
