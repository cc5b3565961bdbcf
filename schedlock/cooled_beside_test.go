package schedlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/schedlock"
)

// A513: the cooldown of a process that lives is its own to end, whatever AtLeast another caller has and however late its clock
// is. When the process has ended, the cooldown ends by the clocks.
func TestCooldownOfALiveProcessBesideAnotherAtLeast(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	h := clock(friday)
	a, b := f.instance(nil, schedlock.Beating(h.options())), f.instance(nil, schedlock.Beating(h.options()))
	_, err := a.Do(ctx, "job", nothing, schedlock.Tick(friday), schedlock.AtLeast(time.Hour))
	require.NoError(t, err)
	short := schedlock.AtLeast(time.Second)
	at := func(later time.Duration) schedlock.CallOption {
		h.set(friday.Add(later))
		require.Eventually(t, func() bool { return !schedlock.Slowest(b.Locker).Before(friday.Add(later)) }, soon, 20*time.Millisecond, "its clock is known")
		return schedlock.Tick(friday.Add(later))
	}
	for _, later := range []time.Duration{30 * time.Minute, 3 * time.Hour} {
		res, err := b.Do(ctx, "job", nothing, at(later), short)
		require.NoError(t, err)
		require.Equal(t, []any{schedlock.StillRunning, a.sess.Owner()}, []any{res.Outcome, res.Owner})
		require.Len(t, f.Keys("/cooldown"), 1)
	}
	require.NoError(t, a.sess.Close(ctx))
	require.Len(t, f.Keys("/cooldown"), 1, "its lease is of its own")
	require.Eventually(t, func() bool { return len(b.Clocks()) == 0 }, soon, 20*time.Millisecond, "the end of the process is known")
	res, err := b.Do(ctx, "job", nothing, at(4*time.Hour), short)
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, res.Outcome)
}
