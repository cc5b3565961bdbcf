package console_test

import (
	"context"
	"fmt"
	"net/http"
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

// A queue of 10,000 waiters, 2,000 names and a store of 5,000 requests, three of which are of unknown outcome: a page has a
// hundred rows. What pages and viewers cost is measured by BenchmarkViewers.
func TestScale(t *testing.T) {
	if testing.Short() {
		t.Skip("it writes 17,000 requests")
	}
	t.Parallel()
	s := open(t, "", nil)
	crowded(testkit.Context(t), t, s.Fixture, 5_000)
	require.Eventually(t, func() bool { return s.get("/").StatusCode == http.StatusOK }, testkit.Soon, 10*time.Millisecond, "the namespace is listed")
	for path, text := range map[string]string{
		"/":                                   "crowd",
		"/queues":                             "1 to 100 of 2001",
		"/search?q=order+12":                  "order 12",
		"/queue?name=semaphore/crowd":         "9990 waiting",
		"/queue?name=semaphore/crowd&page=50": "5001 to 5100 of 9990",
		"/queue?name=semaphore/name-0007":     "name-0007",
		"/store?name=orders":                  "Records 1 to 3 of 3",
		"/store?name=orders&page=40&state=" + fmt.Sprint(int(idempotency.Done)): "Records 4001 to 4100 of 4997",
	} {
		body := s.page(path)
		require.Contains(t, body, text, path)
		require.Less(t, len(body), 200_000, path)
	}
}
