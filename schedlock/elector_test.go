package schedlock_test

import (
	"context"
	"errors"
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
	require.Eventually(t, func() bool { return e.IsLeader(ctxT(t)) == nil }, soon, 20*time.Millisecond)
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
	require.Eventually(t, func() bool { return e.IsLeader(ctx) != nil }, soon, 20*time.Millisecond)
	f.NoKeys("/queue/")
}

// A783: what ended Lead ended the candidacy without a word: an option that Lead refuses, a Wait that was over, a refusal by
// etcd. When the leader was gone, nothing ran.
func TestElectorCampaignsAgain(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	el, err := concurrency.NewElection(b.sess, "cron")
	require.NoError(t, err)
	for _, refused := range []concurrency.AcquireOption{concurrency.TakeOver(), concurrency.Weight(2)} {
		_, err = gocronlock.NewElector(el, refused)
		require.ErrorIs(t, err, schedlock.ErrInvalid)
	}
	leader := f.elector(a)
	leads(t, leader)
	standby, err := gocronlock.NewElector(el, concurrency.Wait(200*time.Millisecond)) // a busy etcd may need most of it to answer
	require.NoError(t, err)
	defer func() { require.NoError(t, standby.Close(ctx)) }()
	require.Eventually(t, func() bool { return errors.Is(standby.IsLeader(ctx), concurrency.ErrFull) }, soon, time.Millisecond)
	require.Eventually(t, func() bool { return !errors.Is(standby.IsLeader(ctx), concurrency.ErrFull) }, soon, time.Millisecond, "it campaigns")
	require.NoError(t, leader.Close(ctx))
	leads(t, standby)
}
