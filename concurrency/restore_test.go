package concurrency_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/observe"
)

// passRevisions lets etcd use up revisions.
func (f fixture) passRevisions(n int) {
	f.T.Helper()
	for range n {
		_, err := f.Client().Put(ctxT(f.T), "elsewhere", "")
		require.NoError(f.T, err)
	}
}

// F44: a backup was restored, revisions began anew, and no process was stopped for
// it. Sessions notice it by themselves, whether they hold, wait or ask; their permits
// end, and they continue with new leases.
func TestRestoreFromABackup(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for lists and leases of its sessions: 12 s")
	}
	t.Parallel()
	f := own(t, 1)
	ctx := ctxT(t)
	waits := make(chan observe.Waiting, 100)
	before, _ := f.Session(&concurrency.SessionOptions{TTL: 5 * time.Second,
		Hooks: testkit.Trace{Waiting: func(i observe.Waiting) { waits <- i }}.Hooks()})
	kept := acquire(t, ctx, sem(t, before, "kept", 1))
	gone := acquire(t, ctx, sem(t, before, "gone", 1))
	b, err := f.Backup(ctx)
	require.NoError(t, err)

	require.NoError(t, gone.Release(ctx))
	after, _ := f.Session(&concurrency.SessionOptions{TTL: 5 * time.Second})
	f.passRevisions(100) // the new history shall take a while to get as far
	p := acquire(t, ctx, sem(t, after, "x", 1))
	w := ask(t, ctx, sem(t, before, "x", 1))
	got(t, waits, "its mirror has met the revisions that will be taken back")
	require.NoError(t, f.Restore(ctx, b))

	closed(t, p.Context().Done(), "a permit that has never been")
	closed(t, kept.Context().Done(), "which permits are still there is unknown")
	require.ErrorIs(t, kept.Err(), concurrency.ErrLost)
	q := granted(t, w, "a waiter queues anew")
	require.Less(t, q.Token(), p.Token(), "tokens repeat: docs/operations.md says what to do")
	require.NoError(t, q.Release(ctx))
	for _, name := range []string{"kept", "gone", "x"} {
		require.NoError(t, acquire(t, ctx, sem(t, before, name, 1)).Release(ctx))
		require.NoError(t, acquire(t, ctx, sem(t, after, name, 1)).Release(ctx))
	}
}

// F44: a session asks for a permit right after the restore. A revision that was met
// before shows it at once, also where its fence had been raised since the backup.
func TestRestoreIsMetByTheNextRequest(t *testing.T) {
	t.Parallel()
	for name, raised := range map[string]bool{"fence as it was": false, "fence raised since": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := own(t, 1)
			ctx := ctxT(t)
			s, c := f.Session(&concurrency.SessionOptions{TTL: 60 * time.Second})
			sm := sem(t, s, "x", 2)
			held := acquire(t, ctx, sm)
			b, err := f.Backup(ctx)
			require.NoError(t, err)
			if raised {
				c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropResponse, Match: func(_ string, msg any) bool {
					return msg.(*pb.TxnRequest).Success[0].GetRequestPut() != nil
				}})
			}
			require.NoError(t, acquire(t, ctx, sm).Release(ctx))
			f.passRevisions(50)
			require.NoError(t, acquire(t, ctx, sm).Release(ctx))
			require.NoError(t, f.Restore(ctx, b))
			c.ResetRequests()
			require.NoError(t, acquire(t, ctx, sm).Release(ctx))
			require.ErrorIs(t, held.Err(), concurrency.ErrLost)
			require.Less(t, c.Requests()["Txn"], 20)
		})
	}
}

// F44, G1: the same on a busy cluster, whose revisions soon pass the old ones. What a
// mirror knew of the old history admits no request in the new one.
func TestRestoreAdmitsNoRequestTwice(t *testing.T) {
	t.Parallel()
	f := own(t, 1)
	ctx := ctxT(t)
	long := &concurrency.SessionOptions{TTL: 30 * time.Second}
	old, _ := f.Session(long)
	young, _ := f.Session(long)
	there, here := sem(t, old, "m", 1), sem(t, young, "m", 1)
	require.NoError(t, acquire(t, ctx, here).Release(ctx))
	b, err := f.Backup(ctx)
	require.NoError(t, err)
	f.passRevisions(100)
	p := acquire(t, ctx, here)
	w := ask(t, ctx, there) // it waits, so it has a mirror, whose view is now far
	require.NoError(t, p.Release(ctx))
	require.NoError(t, granted(t, w, "it has waited").Release(ctx))
	require.NoError(t, f.Restore(ctx, b))

	p = acquire(t, ctx, here)
	w = ask(t, ctx, there)
	f.passRevisions(150)
	st, err := here.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, p.Token(), st.Holders[0].Token)
	require.Equal(t, 1, st.Used)
	waiting(t, w, "another holds")
	require.NoError(t, p.Err())
	require.NoError(t, p.Release(ctx))
	require.NoError(t, granted(t, w, "at last").Release(ctx))
}

// F44: a limit is known by what it says, not only by the revision at which it was set.
func TestRestoreForgetsTheLimit(t *testing.T) {
	t.Parallel()
	f := own(t, 1)
	ctx := ctxT(t)
	long := &concurrency.SessionOptions{TTL: 30 * time.Second}
	old, _ := f.Session(long)
	other, _ := f.Session(long)
	sm, so := sem(t, old, "x", 5), sem(t, other, "x", 5)
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
	b, err := f.Backup(ctx)
	require.NoError(t, err)
	f.passRevisions(10)
	require.NoError(t, sm.SetLimit(ctx, 100))
	was, err := f.Revision(ctx)
	require.NoError(t, err)
	require.NoError(t, f.Restore(ctx, b))
	now, err := f.Revision(ctx)
	require.NoError(t, err)
	f.passRevisions(int(was - now - 1))
	require.NoError(t, so.SetLimit(ctx, 2)) // at the revision of the 100
	acquire(t, ctx, sm)
	acquire(t, ctx, sm)
	_, err = sm.Acquire(ctx, concurrency.Wait(300*time.Millisecond))
	require.ErrorIs(t, err, concurrency.ErrFull)
}

// F44: each watcher sees the new history, too.
func TestRestoreIsWatched(t *testing.T) {
	t.Parallel()
	f := own(t, 1)
	ctx, cancel := context.WithCancel(ctxT(t))
	defer cancel()
	s, _ := f.Session(&concurrency.SessionOptions{TTL: 5 * time.Second})
	sm := sem(t, s, "x", 5)
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
	b, err := f.Backup(ctx)
	require.NoError(t, err)
	f.passRevisions(100)
	states := make(chan concurrency.Status, 1000)
	go func() {
		for st := range sm.Watch(ctx) {
			states <- st
		}
	}()
	got(t, states, "the present state")
	require.NoError(t, f.Restore(ctx, b))
	p := acquire(t, ctx, sm)
	for st := range states {
		if st.Used == 1 && st.Holders[0].Token == p.Token() {
			break
		}
	}
	require.NoError(t, p.Release(ctx))
}
