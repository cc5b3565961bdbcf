package concurrency_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// F44: a backup was restored, revisions began anew, and no process was stopped for
// it. Permits from before are back in etcd and with their holders. Sessions from
// after are told that they are lost, and their waiting calls are served again.
func TestRestoreFromABackup(t *testing.T) {
	t.Parallel()
	f := own(t, 1)
	ctx := ctxT(t)
	before, _ := f.session(&concurrency.SessionOptions{TTL: 5 * time.Second})
	kept := acquire(t, ctx, sem(t, before, "kept", 1))
	gone := acquire(t, ctx, sem(t, before, "gone", 1))
	b, err := f.Backup(ctx)
	require.NoError(t, err)

	require.NoError(t, gone.Release(ctx))
	after, _ := f.session(&concurrency.SessionOptions{TTL: 5 * time.Second})
	for range 50 { // the new history shall take a while to get as far as the old one
		require.NoError(t, acquire(t, ctx, sem(t, after, "x", 1)).Release(ctx))
	}
	p := acquire(t, ctx, sem(t, after, "x", 1))
	w := ask(t, ctx, sem(t, before, "x", 1))
	late := ask(t, ctx, sem(t, after, "kept", 1))
	require.NoError(t, f.Restore(ctx, b))

	closed(t, p.Lost(), "a permit that has never been")
	require.ErrorIs(t, p.Err(), concurrency.ErrLost)
	q := granted(t, w, "a waiter of an old session queues anew")
	require.Less(t, q.Token(), p.Token(), "tokens repeat: docs/operations.md says what to do")
	require.NoError(t, q.Release(ctx))
	require.NoError(t, kept.Err(), "it is as it was")
	require.NoError(t, kept.Release(ctx))
	require.NoError(t, granted(t, late, "a waiter of a lost session").Release(ctx))

	// What was released after the backup is taken again, by nobody. The session knows
	// nothing of it and removes it.
	require.NoError(t, acquire(t, ctx, sem(t, before, "gone", 1)).Release(ctx))
}
