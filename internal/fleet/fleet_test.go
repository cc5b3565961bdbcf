package fleet_test

import (
	"context"
	"fmt"
	"path"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

func TestMain(m *testing.M) { embedtest.Main(m) }

// following is a Fleet whose Run is active.
func following(t *testing.T, f testkit.Fixture, s *concurrency.Session) (*fleet.Fleet, keyspace.Space) {
	t.Helper()
	space, err := keyspace.New(f.Root, path.Base(s.NamespacePrefix()))
	require.NoError(t, err)
	c := f.NewClient(t, nil)
	fl := fleet.New(c.KV, c.Watcher, space, fleet.Options{Probe: 100 * time.Millisecond, Refresh: time.Hour, Logger: zap.NewNop(), Now: time.Now, Details: true})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- fl.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.ErrorIs(t, <-ended, context.Canceled) })
	return fl, space
}

// shown is what a test compares of a queue.
func shown(s *fleet.State, name string) (out []string) {
	if s == nil {
		return nil
	}
	l := s.Queues[fleet.QueueID{Kind: keyspace.Semaphore, Name: name}]
	if l == nil {
		return nil
	}
	holders, waiters := l.Requests(0, 100)
	for _, r := range holders {
		out = append(out, fmt.Sprintf("holds %s %s", r.ID, r.Note))
	}
	for _, r := range waiters {
		out = append(out, fmt.Sprintf("waits %s %s", r.ID, r.Note))
	}
	return out
}

// A watch and a list show the same requests in the order of the queue, with what their owners stored.
func TestRequestsInOrder(t *testing.T) {
	t.Parallel()
	f, ctx := testkit.Shared(t), testkit.Context(t)
	s, _ := f.Session(&concurrency.SessionOptions{TTL: 300 * time.Second})
	fl, space := following(t, f, s)
	sm, err := concurrency.NewSemaphore(s, "charge", 1, nil)
	require.NoError(t, err)
	_, err = sm.Acquire(ctx, concurrency.ID("first"), concurrency.Note("a note"))
	require.NoError(t, err)
	waiting, cancel := context.WithCancel(ctx)
	ended := make(chan error, 2)
	for i, id := range []string{"second", "third"} {
		go func() {
			_, err := sm.Acquire(waiting, concurrency.ID(id))
			ended <- err
		}()
		require.Eventually(t, func() bool {
			st, err := sm.Status(ctx)
			return err == nil && len(st.Waiters) == i+1
		}, testkit.Soon, 5*time.Millisecond)
	}
	want := []string{"holds first a note", "waits second ", "waits third "}
	require.Eventually(t, func() bool {
		var got []string
		fl.View(func(s *fleet.State, m fleet.Meta) { got = shown(s, "charge") })
		return fmt.Sprint(got) == fmt.Sprint(want)
	}, testkit.Soon, 5*time.Millisecond, "the watch shows the queue")

	read, err := fleet.Read(ctx, f.Client(), space, time.Now())
	require.NoError(t, err)
	require.Equal(t, want, shown(read, "charge"))
	require.Equal(t, s.Owner(), read.Sessions[int64(s.Lease())].Owner)

	l := read.Queues[fleet.QueueID{Kind: keyspace.Semaphore, Name: "charge"}]
	for from, want := range map[int]int{-1: 1, 0: 1, 1: 1, 2: 0, 99: 0} {
		_, waiters := l.Requests(from, 1)
		require.Len(t, waiters, want, "a page from %d", from)
	}
	cancel()
	<-ended
	<-ended
}

// The version changes with the keys, and not with an answer to a probe. etcd answers them as well when
// nothing is written to it, so the namespace is read once.
func TestVersion(t *testing.T) {
	t.Parallel()
	f, ctx := testkit.Own(t, 1), testkit.Context(t)
	s, _ := f.Session(&concurrency.SessionOptions{TTL: 300 * time.Second})
	fl, _ := following(t, f, s)
	require.Eventually(t, func() bool { return fl.Meta().Up }, testkit.Soon, 5*time.Millisecond)
	before := fl.Meta()
	require.Eventually(t, func() bool {
		now := fl.Meta()
		if now.Version != before.Version { // the session has written since
			before = now
		}
		return now.Answered.Sub(before.Answered) > time.Second
	}, testkit.Soon, 5*time.Millisecond, "answered probes do not change the version, and so list nothing")
	mu, err := concurrency.NewMutex(s, "m")
	require.NoError(t, err)
	_, err = mu.Lock(ctx)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return fl.Meta().Version > before.Version }, testkit.Soon, 5*time.Millisecond, "a request changes the version")
	require.ErrorIs(t, fl.Run(ctx), fleet.ErrActive)
}
