package schedlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/schedlock"
	"github.com/etcdkit/etcdkit/schedlock/gocronlock"
)

func (f fixture) elector(in instance) *gocronlock.Elector {
	f.T.Helper()
	el, err := concurrency.NewElection(in.sess, "cron")
	require.NoError(f.T, err)
	e, err := gocronlock.NewElector(el)
	require.NoError(f.T, err)
	f.T.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		_ = e.Close(ctx)
	})
	return e
}

func leads(t testing.TB, e *gocronlock.Elector) {
	t.Helper()
	require.Eventually(t, func() bool { return e.IsLeader(ctxT(t)) == nil }, soon, 5*time.Millisecond)
}

// J13: an elector that was closed, or whose session was, leads no more and leaves nothing.
func TestElectorIsClosed(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	_, err := gocronlock.NewElector(nil)
	require.ErrorIs(t, err, schedlock.ErrInvalid)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	e := f.elector(a)
	leads(t, e)
	require.NoError(t, e.Close(ctx))
	require.NoError(t, e.Close(ctx))
	require.ErrorIs(t, e.IsLeader(ctx), context.Canceled)
	f.NoKeys("/queue/")
	e = f.elector(b)
	leads(t, e)
	require.NoError(t, b.sess.Close(ctx))
	require.Eventually(t, func() bool { return e.IsLeader(ctx) != nil }, soon, 5*time.Millisecond)
	f.NoKeys("/queue/")
}
