package schedlock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/schedlock"
	"github.com/etcdkit/etcdkit/schedlock/gocronlock"
)

// A job that has never run is paused before its first run, by a process that does not run it:
// with an option, since an unknown name may be misspelt.
func TestPauseBeforeTheFirstRun(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	ops, worker := f.instance(nil, nil), f.instance(nil, nil)
	err := ops.Pause(ctx, "nightly", "moving house")
	require.ErrorIs(t, err, schedlock.ErrUnknownJob)
	require.ErrorContains(t, err, "BeforeFirstRun")
	require.ErrorIs(t, ops.Pause(ctx, "nightly", "", nil), schedlock.ErrInvalid)
	require.Empty(t, f.Values("/job/"), "nothing is left of a name that is refused")

	require.NoError(t, ops.Pause(ctx, "nightly", "moving house", schedlock.BeforeFirstRun()))
	names, err := ops.Jobs(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"nightly"}, names)
	res, err := worker.Do(ctx, "nightly", nothing, schedlock.Tick(tick(1)))
	require.NoError(t, err)
	require.Equal(t, []any{schedlock.Paused, ops.sess.Owner(), "moving house"}, []any{res.Outcome, res.Paused.By, res.Paused.Reason})
	require.ErrorContains(t, &gocronlock.SkippedError{Result: res}, "paused by "+ops.sess.Owner()+": moving house")
	require.NoError(t, ops.Resume(ctx, "nightly"))
	res, err = worker.Do(ctx, "nightly", nothing, schedlock.Tick(tick(2)))
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, res.Outcome)
	require.NoError(t, ops.Pause(ctx, "nightly", ""), "it is known now")
	res, err = worker.Do(ctx, "nightly", nothing, schedlock.Tick(tick(3)))
	require.NoError(t, err)
	require.ErrorContains(t, &gocronlock.SkippedError{Result: res}, ": paused by "+ops.sess.Owner())
}
