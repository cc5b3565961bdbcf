package mirror_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/internal/record"
)

// frontOf is a mirror of the front part of a queue with some requests.
type frontOf struct {
	*fixture
	keys   keyspace.Queue
	lease  clientv3.LeaseID
	mirror *mirror.Mirror
	slots  []string
	tokens []int64
	newest atomic.Int64 // the token of the newest waiter
}

// front writes a limit unless it is fixed, and so many requests, and follows the queue up to those that wait,
// maybe by deletions alone.
func front(t *testing.T, fixed, limit int64, requests int, alone bool) *frontOf {
	t.Helper()
	f := &frontOf{fixture: newFixture(t, embedtest.Shared(t), nil)}
	ctx := ctxT(t)
	space, err := keyspace.New(f.prefix, "test")
	require.NoError(t, err)
	f.keys = space.Queue(keyspace.Semaphore, "x")
	lease, err := f.writer.Grant(ctx, 300)
	require.NoError(t, err)
	f.lease = lease.ID
	if fixed == 0 {
		f.setLimit(limit)
	}
	for range requests {
		f.join()
	}
	f.newest.Store(f.tokens[0])
	f.mirror = mirror.New(f.keys, fixed)
	run, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.source.Front(run, f.mirror, f.newest.Load, alone)
	}()
	t.Cleanup(func() { stop(); testkit.Closed(t, done, "it ends with its ctx") })
	return f
}

func (f *frontOf) setLimit(n int64) {
	f.t.Helper()
	_, err := f.writer.Put(ctxT(f.t), f.keys.Limit, record.Limit{Limit: n, Settled: true}.Encode())
	require.NoError(f.t, err)
}

func (f *frontOf) join() {
	f.t.Helper()
	key := f.keys.Slot(keyspace.Slot{Lease: int64(f.lease), Number: len(f.slots), Weight: 1})
	resp, err := f.writer.Put(ctxT(f.t), key, "", clientv3.WithLease(f.lease))
	require.NoError(f.t, err)
	f.slots, f.tokens = append(f.slots, key), append(f.tokens, resp.Header.Revision)
}

func (f *frontOf) leave(i int) {
	f.t.Helper()
	_, err := f.writer.Delete(ctxT(f.t), f.slots[i])
	require.NoError(f.t, err)
}

// wait waits for a request, without what its Txn would have counted.
func (f *frontOf) wait(i int) *mirror.Waiter {
	f.newest.Store(max(f.newest.Load(), f.tokens[i]))
	return f.mirror.Wait(f.slots[i], f.tokens[i], 1, mirror.Found{})
}

// shows waits until the mirror shows so many requests before one.
func (f *frontOf) shows(i, before int) {
	f.t.Helper()
	require.Eventually(f.t, func() bool { ahead, ok := f.mirror.Ahead(f.slots[i], f.tokens[i]); return ok && ahead == before }, soon, 5*time.Millisecond)
}

// W3: where the limit is stored, the front part is followed with it, by one watch.
func TestFrontFollowsTheLimit(t *testing.T) {
	t.Parallel()
	f := front(t, 0, 1, 4, false)
	w := f.wait(2)
	f.leave(0) // the view is up to date when it has seen this
	f.shows(2, 1)
	f.setLimit(2)
	require.Equal(t, mirror.Admitted, testkit.Got(t, w.Outcome(), "it fits the new limit"))
	require.False(t, w.Suggested())
}

// W3: with deletions alone, another watch brings the limit. So what the front part shows as admitted after a
// deletion is to be confirmed, and after a change of the limit it is listed again, which confirms all.
func TestFrontSuggests(t *testing.T) {
	t.Parallel()
	f := front(t, 0, 1, 4, true)
	w := f.wait(2)
	f.leave(0) // the view is up to date when it has seen this
	f.shows(2, 1)
	f.setLimit(2)
	f.mirror.ListAgain()
	require.Equal(t, mirror.Admitted, testkit.Got(t, w.Outcome(), "it fits the new limit"))
	require.False(t, w.Suggested(), "by a list")
	w = f.wait(3)
	f.shows(3, 2)
	f.leave(1)
	require.Equal(t, mirror.Admitted, testkit.Got(t, w.Outcome(), "it fits"))
	require.True(t, w.Suggested(), "by a deletion")
	require.EqualValues(t, 2, w.UpTo())
}

// A request that is newer than the list is neither gone nor admitted by it: the queue is listed again.
func TestFrontListsAgainForANewerRequest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fixed int64
		alone bool
	}{"stored": {0, false}, "stored, deletions alone": {0, true}, "fixed": {1, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := front(t, c.fixed, 1, 4, c.alone)
			require.Equal(t, mirror.Admitted, testkit.Got(t, f.wait(0).Outcome(), "it is the first"))
			last := f.wait(3)
			f.leave(0)
			f.leave(2)
			require.Equal(t, mirror.Admitted, testkit.Got(t, f.wait(1).Outcome(), "it is the next"))
			require.Empty(t, last.Outcome())
			f.leave(1)
			require.Equal(t, mirror.Admitted, testkit.Got(t, last.Outcome(), "it is the last"))
			require.False(t, last.Suggested() && (c.fixed > 0 || !c.alone))
		})
	}
}
