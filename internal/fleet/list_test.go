package fleet_test

import (
	"context"
	"fmt"
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/internal/record"
)

// reads are reads of etcd: what happens before each, and how many keys they have returned.
type reads struct {
	clientv3.KV
	before func(context.Context)
	keys   atomic.Int64
}

func (r *reads) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	r.before(ctx)
	resp, err := r.KV.Get(ctx, key, opts...)
	if err == nil {
		r.keys.Add(int64(len(resp.Kvs)))
	}
	return resp, err
}

// listed returns a Fleet that has listed its namespace, and follows it.
func listed(t *testing.T, r *reads, f testkit.Fixture, space keyspace.Space, o fleet.Options) *fleet.Fleet {
	t.Helper()
	c := f.NewClient(t, nil)
	r.KV = c.KV
	o.Probe, o.Refresh, o.Logger = time.Second, time.Hour, zap.NewNop()
	fl := fleet.New(r, c.Watcher, space, o)
	ctx, cancel := context.WithCancel(testkit.Context(t))
	ended := make(chan error, 1)
	go func() { ended <- fl.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	require.NoError(t, fl.Await(ctx, 1))
	return fl
}

// beating returns a namespace in which one process has a session, with what writes the time of its clock and returns the
// revision.
func beating(t *testing.T) (f testkit.Fixture, space keyspace.Space, lease int64, beat func(ctx context.Context, ms int64) int64) {
	t.Helper()
	f = testkit.Shared(t)
	space, err := keyspace.New(f.Root, "shop")
	require.NoError(t, err)
	granted, err := f.Client().Grant(testkit.Context(t), 300)
	require.NoError(t, err)
	return f, space, int64(granted.ID), func(ctx context.Context, ms int64) int64 {
		resp, err := f.Client().Put(ctx, space.Session(int64(granted.ID)).Alive(), record.Clock{Owner: "web-7", AtMS: ms}.Encode(), clientv3.WithLease(granted.ID))
		require.NoError(t, err)
		return resp.Header.Revision
	}
}

// A Fleet that lists the clocks and the sessions alone reads nothing else, however large the namespace is, and has what
// changes later.
func TestOnly(t *testing.T) {
	t.Parallel()
	f, ctx := testkit.Shared(t), testkit.Context(t)
	s, client := f.Session(nil)
	space, err := keyspace.New(f.Root, path.Base(s.NamespacePrefix()))
	require.NoError(t, err)
	orders := space.Store("orders")
	for n := range 50 {
		_, err := client.Put(ctx, orders.Entry("acme", "pay", fmt.Sprint(n)).Record, record.Attempt{State: record.AttemptDone, Number: 1}.Encode())
		require.NoError(t, err)
	}
	r := &reads{before: func(context.Context) {}}
	fl := listed(t, r, f, space, fleet.Options{Now: time.Now, Only: []string{space.Clocks(), space.Sessions()}})
	fl.View(func(st *fleet.State, _ fleet.Meta) {
		require.Contains(t, st.Sessions, int64(s.Lease()))
		require.Empty(t, st.Stores)
	})
	require.Less(t, r.keys.Load(), int64(10), "the session's, and no records")
	crowd := space.Queue(keyspace.Semaphore, "crowd")
	resp, err := client.Put(ctx, crowd.Limit, record.Limit{Limit: 1}.Encode())
	require.NoError(t, err)
	require.NoError(t, fl.Await(ctx, resp.Header.Revision))
	fl.View(func(st *fleet.State, _ fleet.Meta) { require.Len(t, st.Queues, 1) })
}

// A process that writes while etcd is slow to answer a list has no clock that is ahead.
func TestClocksOfASlowList(t *testing.T) {
	t.Parallel()
	f, space, lease, beat := beating(t)
	var ahead atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	r := &reads{before: func(ctx context.Context) {
		if ahead.Swap(int64(time.Minute)) == 0 { // the first one has waited for so long, and then the process writes
			beat(ctx, now().UnixMilli())
		}
	}}
	listed(t, r, f, space, fleet.Options{Now: now}).View(func(st *fleet.State, _ fleet.Meta) {
		require.Equal(t, []fleet.Clock{{Lease: lease, Owner: "web-7"}}, st.Clocks(0))
	})
}

// While a namespace is read again, however long that takes, its watch goes on: the state stays confirmed, and does not go back
// to that of the list (A309 in internal/proof/tested-failures.md).
func TestReadAgainBesideTheWatch(t *testing.T) {
	t.Parallel()
	f := testkit.Shared(t)
	ctx, cancel := context.WithTimeout(testkit.Context(t), testkit.Soon)
	defer cancel()
	s, client := f.Session(nil)
	space, err := keyspace.New(f.Root, path.Base(s.NamespacePrefix()))
	require.NoError(t, err)
	c := f.NewClient(t, nil)
	var fl *fleet.Fleet
	var pages atomic.Int64 // of the second list
	again, slow := make(chan struct{}), make(chan struct{})
	r := &reads{KV: c.KV, before: func(ctx context.Context) {
		if fl.Meta().Lists == 1 && pages.Add(1) == 2 { // whose revision is known by then
			close(again)
			select {
			case <-slow:
			case <-ctx.Done(): // as a read ends when its watch does
			}
		}
	}}
	const probe = 500 * time.Millisecond // a busy machine does not take three of them for the next watch
	fl = fleet.New(r, c.Watcher, space, fleet.Options{Probe: probe, Refresh: time.Second, Logger: zap.NewNop(), Now: time.Now})
	ended := make(chan error, 1)
	running, stop := context.WithCancel(ctx)
	go func() { ended <- fl.Run(running) }()
	release := sync.OnceFunc(func() { close(slow) })
	defer func() { stop(); release(); <-ended }()
	testkit.Closed(t, again, "the namespace is read again")
	began := time.Now()
	resp, err := client.Put(ctx, space.Queue(keyspace.Semaphore, "crowd").Limit, record.Limit{Limit: 1}.Encode())
	require.NoError(t, err)
	require.NoError(t, fl.Await(ctx, resp.Header.Revision), "the watch goes on")
	require.Eventually(t, func() bool { m := fl.Meta(); return m.Up && m.Answered.Sub(began) > 4*probe }, testkit.Soon, time.Millisecond, "it is confirmed")
	release()
	lists := int64(1)
	for lists == 1 {
		require.NoError(t, ctx.Err(), "the namespace was read again")
		fl.View(func(st *fleet.State, m fleet.Meta) {
			require.True(t, m.Up)
			require.Len(t, st.Queues, 1, "what was shown is shown again")
			require.GreaterOrEqual(t, m.Revision, resp.Header.Revision)
			lists = m.Lists
		})
	}
}

// A387: a namespace is listed page by page, at one revision, which etcd compacts meanwhile. A page failed for that; it is
// listed again.
func TestListedAgainAfterACompaction(t *testing.T) {
	t.Parallel()
	f := testkit.Shared(t)
	s, client := f.Session(nil)
	space, err := keyspace.New(f.Root, path.Base(s.NamespacePrefix()))
	require.NoError(t, err)
	compacted := client.Inject(embedtest.Fault{Method: "Range", Do: embedtest.FailWith, Err: rpctypes.ErrGRPCCompacted, Match: func(_ string, msg any) bool {
		r, ok := msg.(*etcdserverpb.RangeRequest)
		return ok && r.Revision > 0
	}})
	st, err := fleet.Read(testkit.Context(t), client.KV, space, time.Now())
	require.NoError(t, err)
	require.Contains(t, st.Sessions, int64(s.Lease()))
	require.Equal(t, 1, compacted.Hits())
}
