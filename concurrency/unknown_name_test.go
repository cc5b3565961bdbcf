package concurrency_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// SetLimit of a misspelled name makes no semaphore, whatever happens at the same time. With
// CreateLimit it does. A name with a stored limit or a live request is no typo, nor one of
// which the session has seen a limit.
func TestSetLimitOfAnUnknownName(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	other, c := f.Session(nil)
	typo := sem(t, s, "paymnts", 5)
	err := typo.SetLimit(ctx, 3)
	require.ErrorIs(t, err, concurrency.ErrNoLimit)
	require.ErrorContains(t, err, `set limit of "paymnts": `)
	require.ErrorContains(t, err, "CreateLimit")
	require.Empty(t, f.Keys("paymnts"))
	st, err := typo.Status(ctx)
	require.NoError(t, err)
	require.False(t, st.Stored)

	require.NoError(t, typo.SetLimit(ctx, 3, concurrency.CreateLimit()))
	there := sem(t, other, "paymnts", 3)
	require.NoError(t, there.SetLimit(ctx, 4), "it is stored")
	st, err = typo.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, []any{4, true}, []any{st.Limit, st.Stored})

	// The limit is deleted by hand while a request is live, and then without one.
	used := sem(t, s, "used", 2)
	p := acquire(t, ctx, used)
	limit := f.Keys("used/limit")[0]
	remove := func() {
		_, err := f.Client().Delete(ctx, limit)
		require.NoError(t, err)
	}
	remove()
	require.NoError(t, sem(t, other, "used", 2).SetLimit(ctx, 2), "a request is live")
	require.NoError(t, p.Release(ctx))
	remove()
	require.NoError(t, used.SetLimit(ctx, 2), "this session has seen it")
	third, _ := f.Session(nil)
	remove()
	require.ErrorIs(t, sem(t, third, "used", 2).SetLimit(ctx, 2), concurrency.ErrNoLimit)

	// Another stores a limit between read and change: the later change wins.
	c.Inject(embedtest.Fault{Method: "Txn", Match: txn(true), Do: embedtest.Pass, Before: func() {
		assertNoError(t, sem(t, s, "new", 1).SetLimit(ctx, 7, concurrency.CreateLimit()))
	}})
	raced := sem(t, other, "new", 1)
	require.NoError(t, raced.SetLimit(ctx, 8, concurrency.CreateLimit()))
	st, err = raced.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, 8, st.Limit)
}

// Queues lists what is in the namespace, by kind and name, with the number of requests,
// page by page.
func TestQueues(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	list := func() (found []concurrency.QueueInfo) {
		for q, err := range s.Queues(ctx) {
			require.NoError(t, err)
			found = append(found, q)
		}
		return found
	}
	require.Empty(t, list())
	for _, name := range []string{"a", "a-b", "ä %"} {
		require.NoError(t, acquire(t, ctx, sem(t, s, name, 1)).Release(ctx))
	}
	acquire(t, ctx, sem(t, s, "a", 1))
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	ask(t, waiting, sem(t, s, "a", 1))
	lock(t, s, "a")
	require.NoError(t, lock(t, s, "unused").Release(ctx))
	_, err := election(t, s, "e").Campaign(ctx)
	require.NoError(t, err)
	slot := f.Keys("semaphore/a/queue/light/")[0]
	base := slot[:len(slot)-4]
	all := strings.TrimSuffix(f.Keys("semaphore/a/limit")[0], "a/limit")
	for _, stray := range []string{"%zz/limit", "b", "c/nonsense", "%61/limit"} {
		_, err := f.Client().Put(ctx, all+stray, "")
		require.NoError(t, err)
	}
	want := []concurrency.QueueInfo{
		{Kind: concurrency.KindSemaphore, Name: "ä %", Stored: true},
		{Kind: concurrency.KindSemaphore, Name: "a-b", Stored: true},
		{Kind: concurrency.KindSemaphore, Name: "a", Stored: true, Requests: 2},
		{Kind: concurrency.KindMutex, Name: "a", Requests: 1},
		{Kind: concurrency.KindElection, Name: "e", Requests: 1},
	}
	require.Equal(t, want, list())

	for from := 0x100; from < 0x100+1100; from += 100 { // more than two pages
		var puts []clientv3.Op
		for n := from; n < from+100; n++ {
			puts = append(puts, clientv3.OpPut(base+fmt.Sprintf("%04x", n), "", clientv3.WithLease(s.Lease())))
		}
		_, err := f.Client().Txn(ctx).Then(puts...).Commit()
		require.NoError(t, err)
	}
	want[2].Requests += 1100
	require.Equal(t, want, list())
	for q, err := range s.Queues(ctx) { // and not to the end
		require.NoError(t, err)
		require.Equal(t, want[0], q)
		break
	}
	shut, _ := f.Session(nil)
	require.NoError(t, shut.Close(ctx))
	for _, err := range shut.Queues(ctx) {
		require.ErrorIs(t, err, concurrency.ErrClosed)
	}
}
