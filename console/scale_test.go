package console_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/internal/record"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// crowded puts a queue of 10,000 waiters, 2,000 names and a store of so many requests, three of which are of unknown
// outcome, into a namespace.
func crowded(ctx context.Context, t testing.TB, f testkit.Fixture, requests int) {
	t.Helper()
	space, err := keyspace.New(f.Root, "test")
	require.NoError(t, err)
	const waiters, names, sessions = 10_000, 2_000, 4
	client := f.NewClient(t, nil)
	var puts []clientv3.Op
	put := func(key, value string, lease clientv3.LeaseID) {
		puts = append(puts, clientv3.OpPut(key, value, clientv3.WithLease(lease)))
		if len(puts) == 100 {
			_, err := client.Txn(ctx).Then(puts...).Commit()
			require.NoError(t, err)
			puts = nil
		}
	}
	var leases []clientv3.LeaseID
	for range sessions {
		granted, err := client.Grant(ctx, 600)
		require.NoError(t, err)
		leases = append(leases, granted.ID)
	}
	request := record.Request{Nonce: "n", Owner: "web-7", Note: "order 12", AtMS: time.Now().UnixMilli()}.Encode()
	crowd := space.Queue(keyspace.Semaphore, "crowd")
	put(crowd.Limit, record.Limit{Limit: 10}.Encode(), 0)
	for i := range waiters {
		lease := leases[i%sessions]
		put(crowd.Slot(keyspace.Slot{Lease: int64(lease), Number: i / sessions, Weight: 1}), request, lease)
	}
	for i := range names {
		q := space.Queue(keyspace.Semaphore, fmt.Sprintf("name-%04d", i))
		put(q.Limit, record.Limit{Limit: 10}.Encode(), 0)
		put(q.Slot(keyspace.Slot{Lease: int64(leases[0]), Number: waiters + i, Weight: 1}), request, leases[0])
	}
	const unknown = 3
	store := space.Store("orders")
	for i := range requests {
		r := record.Attempt{State: record.AttemptDone, Number: 1, Owner: "web-7", Scope: "acme", Op: "POST /payments"}
		if i%(requests/unknown) == requests/unknown-1 {
			r.State, r.Refuse = record.AttemptWorking, true
		}
		put(store.Entry("acme", "POST /payments", fmt.Sprint(i)).Record, r.Encode(), leases[0])
	}
	_, err = client.Txn(ctx).Then(puts...).Commit()
	require.NoError(t, err)
}

// A queue of 10,000 waiters, 2,000 names and a store of 50,000 requests, three of which are of unknown outcome: a
// page has a hundred rows, and fifty viewers cost what one does. It prints what a page takes.
func TestScale(t *testing.T) {
	if testing.Short() {
		t.Skip("it writes 62,000 requests")
	}
	t.Parallel()
	s := open(t, "", nil)
	ctx := testkit.Context(t)
	crowded(ctx, t, s.Fixture, 50_000)
	require.Eventually(t, func() bool { return s.get("/").StatusCode == http.StatusOK }, testkit.Soon, 10*time.Millisecond, "the namespace is listed")
	for _, path := range []string{"/", "/queues", "/search?q=order+12", "/queue?name=semaphore/crowd", "/queue?name=semaphore/crowd&page=50", "/queue?name=semaphore/name-0007",
		"/store?name=orders", "/store?name=orders&state=" + fmt.Sprint(int(idempotency.Done)) + "&page=400"} {
		began := time.Now()
		body := s.page(path)
		took := time.Since(began)
		began = time.Now()
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { s.get(path, func(r *http.Request) { *r = *r.WithContext(context.WithoutCancel(ctx)) }) })
		}
		all.Wait()
		atOnce := time.Since(began)
		var each []time.Duration
		for range 40 {
			began = time.Now()
			s.page(path)
			each = append(each, time.Since(began))
		}
		slices.Sort(each)
		t.Logf("%-40s %8v, %7d bytes; 50 viewers at once: %v; 95 of 100 within %v", path, took.Round(time.Millisecond), len(body), atOnce.Round(time.Millisecond), each[37].Round(100*time.Microsecond))
		require.Less(t, len(body), 200_000, path)
	}
	require.Contains(t, s.page("/queue?name=semaphore/crowd"), "9990 waiting")
	require.Contains(t, s.page("/queue?name=semaphore/crowd&page=50"), "5001 to 5100 of 9990")
	require.Contains(t, s.page("/queues"), "1 to 100 of 2001")
	require.Contains(t, s.page("/store?name=orders"), "Records 1 to 3 of 3")
}
