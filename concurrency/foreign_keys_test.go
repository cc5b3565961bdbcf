package concurrency_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
)

// Foreign keys in the counted ranges of a queue cost a session one read of the queue. Then
// they are known: a hand-over costs one Txn for the request and one for the release, and
// so does a request without contention. One that is put again or deleted, or a new one,
// costs one read more.
func TestForeignKeyCostsNoRead(t *testing.T) {
	t.Parallel()
	f := own(t, 1)
	ctx := ctxT(t)
	for _, where := range []string{"light/", "heavy/2/"} {
		s, c := f.Session(idle())
		sm := sem(t, s, where[:5], 1)
		p := acquire(t, ctx, sm)
		slot := f.Keys("/" + where[:5] + "/queue/")[0]
		require.NoError(t, p.Release(ctx))
		// The limit was read twice, and the session lists its own range once.
		require.Eventually(t, func() bool { return c.Requests()["Range"] == 3 }, soon, tick)
		base, _, _ := strings.Cut(slot, "light/0")
		put := func(key string) {
			_, err := f.Client().Put(ctx, base+where+key, "{")
			require.NoError(t, err)
		}
		handOver := func() {
			n := len(f.Keys("/" + where[:5] + "/queue/"))
			w := ask2(ctx, sm)
			require.Eventually(t, func() bool { return len(f.Keys("/"+where[:5]+"/queue/")) == n+1 }, soon, tick)
			require.NoError(t, p.Release(ctx))
			p = granted(t, w, "past the foreign keys")
		}
		costs := func(what string, reads int, do func()) {
			t.Helper()
			before := c.Requests()
			do()
			require.LessOrEqual(t, c.Requests()["Range"]-before["Range"], reads, "%s, %s", where, what)
		}
		handOvers := func() {
			for range 8 {
				handOver()
			}
		}
		put("nonsense")
		put("0000000000000001-0000") // one of ours in form, but on no lease
		costs("the first request", 1, func() { p = acquire(t, ctx, sm) })
		costs("hand-overs", 0, handOvers)
		put("late")
		f.sees(ctx, sm)
		costs("hand-overs with one more", 0, handOvers)
		put("nonsense") // another revision of it
		_, err := f.Client().Delete(ctx, base+where+"late")
		require.NoError(t, err)
		handOver() // its Txn may be built before the watch has brought the change
		handOver()
		costs("hand-overs after changes", 0, handOvers)
		require.NoError(t, p.Release(ctx))
		costs("no contention", 0, func() {
			for range 3 {
				require.NoError(t, acquire(t, ctx, sm).Release(ctx))
			}
		})
	}
}

// A foreign key that becomes a request counts as one from that moment on.
func TestForeignKeyBecomesARequest(t *testing.T) {
	t.Parallel()
	f := own(t, 1)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	other, _ := f.Session(idle())
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sm)
	slot := f.Keys("queue/light/")[0]
	require.NoError(t, p.Release(ctx))
	stray := strings.Replace(slot, fmt.Sprintf("%016x", int64(s.Lease())), fmt.Sprintf("%016x", int64(other.Lease())), 1)
	_, err := f.Client().Put(ctx, stray, "{")
	require.NoError(t, err)
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
	f.sees(ctx, sm)
	require.NoError(t, acquire(t, ctx, sm).Release(ctx)) // it is known as a foreign key

	// The session's watch loses the change.
	lost := c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.DropResponse, Match: eventOn("/semaphore/")})
	_, err = f.Client().Put(ctx, stray, "{", clientv3.WithLease(other.Lease()))
	require.NoError(t, err)
	require.NoError(t, lost.WaitHit(ctx))
	w := ask2(ctx, sm)
	require.Eventually(t, func() bool { return len(f.Keys("queue/light/")) == 2 }, soon, tick)
	st, err := sm.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, []int{1, 1, 0}, []int{len(st.Holders), len(st.Waiters), st.Foreign})
	waiting(t, w, "the key on a lease is a request, and older")
	_, err = f.Client().Delete(ctx, stray)
	require.NoError(t, err)
	require.NoError(t, granted(t, w, "it is gone").Release(ctx))
}
