package schedlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/schedlock"
)

// K29: what operators read says what is wrong: the name of a job to be unlocked is misspelled, and fire times are no period.
func TestTextsForOperators(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	h := clock(friday)
	in, other := f.instance(nil, h.options()), f.instance(nil, h.options())
	job, err := in.Job("job", nine{}, nothing)
	require.NoError(t, err)
	job.Next(h.now())
	_, err = job.RunContext(ctx)
	require.NoError(t, err)
	for _, opts := range [][]schedlock.UnlockOption{nil, {schedlock.OnlyRun(7)}} {
		require.ErrorIs(t, other.Unlock(ctx, "jbo", "it hangs", opts...), schedlock.ErrUnknownJob)
		require.ErrorIs(t, other.Unlock(ctx, "job", "it hangs", opts...), schedlock.ErrNotRunning)
	}
	_, err = in.Job("new", nine{}, nothing)
	require.NoError(t, err)
	require.ErrorIs(t, in.Unlock(ctx, "new", "it hangs"), schedlock.ErrNotRunning, "this process has it")

	st, err := other.Status(ctx, "job")
	require.NoError(t, err)
	require.Regexp(t, `^AtMost 1h0m0s, AtLeast 0s, Retries 0, fire time like 2024-01-1`, st.Settings)
	hourly, err := other.Job("job", grid(time.Hour), nothing)
	require.NoError(t, err)
	h.set(friday.Add(time.Hour))
	hourly.Next(h.now())
	_, err = hourly.RunContext(ctx)
	require.ErrorIs(t, err, schedlock.ErrSettings)
	require.NotContains(t, err.Error(), "Every")
	require.Contains(t, err.Error(), "Retries 0, fire time like")
}

// K29: a fleet whose clock was a day ahead for more ticks than are kept, and was set right, says why nothing starts.
func TestTicksBelowTheFloorOfAFastFleet(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	h := clock(friday.Add(24 * time.Hour))
	o := h.options()
	o.Keep = 2
	in, lines := f.logged(nil, o)
	for n := range 4 {
		res, err := in.Do(ctx, "job", nothing, schedlock.Tick(h.now().Add(time.Duration(n)*time.Second)))
		require.NoError(t, err)
		require.Equal(t, schedlock.Ran, res.Outcome)
	}
	h.set(friday)
	for n := range 2 {
		res, err := in.Do(ctx, "job", nothing, schedlock.Tick(friday.Add(time.Duration(n)*time.Second)))
		require.NoError(t, err)
		require.Equal(t, schedlock.Late, res.Outcome)
	}
	warned := lines.FilterMessageSnippet("earlier ticks do not start any more").All()
	require.Len(t, warned, 1)
	require.Equal(t, "job", warned[0].ContextMap()["job"])
	require.Greater(t, warned[0].ContextMap()["by"], 23*time.Hour)
}
