package virtual

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/schedlock"
)

// A tick is started in spite of the settings of a process of the former release that was killed just before, or that waits for
// the run of another job to close (A462 in internal/proof/tested-failures.md): every process of the new release refused it, at
// once, and none tried again until the next day. Beside one that lives it is refused.
func TestSettingsOfAProcessThatEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ends   func(t *testing.T, former *desk)
		within time.Duration
		err    error
	}{
		"it was killed": {func(_ *testing.T, former *desk) { former.client.Stall() }, ttl + 2*time.Second, nil},
		"it closes": {func(t *testing.T, former *desk) {
			go func() { _ = former.session.Close(context.Background()) }()
			time.Sleep(time.Second)
		}, time.Second, nil},
		"it lives": {func(*testing.T, *desk) {}, ttl + 2*time.Second, schedlock.ErrSettings},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, on []*desk) {
				former, next := on[0].locker(), on[1].locker()
				_, err := former.Do(t.Context(), "nightly", noWork, fireTime(1), schedlock.AtMost(time.Minute))
				require.NoError(t, err)
				end := make(chan struct{})
				finish := sync.OnceFunc(func() { close(end) })
				defer finish()
				begun, done := doing(t.Context(), former, true, end, fireTime(1))
				came(t, begun, "the run of another job")
				c.ends(t, on[0])
				asked := time.Now()
				res, err := next.Do(t.Context(), "nightly", noWork, fireTime(2), schedlock.AtMost(time.Hour))
				require.ErrorIs(t, err, c.err)
				if c.err == nil {
					require.Equal(t, schedlock.Ran, res.Outcome)
				}
				require.LessOrEqual(t, time.Since(asked), c.within)
				on[0].client.Heal()
				finish()
				came(t, done, "its end")
			})
		})
	}
}

// A call that waits for other settings to end returns their error also if the tick is started meanwhile, by a process that has
// these settings (A505): it was Claimed, at each tick, so that a process that can start nothing was not to be told from one that
// came second. If the one that has started it has the caller's settings, it is Claimed.
func TestTickIsStartedWhileSettingsDiffer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		starter int
		killed  bool
		err     error
	}{
		"by the process whose settings they are":       {starter: 0, err: schedlock.ErrSettings},
		"by another with the caller's, after its loss": {starter: 2, killed: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, on []*desk) {
				options := []schedlock.Option{schedlock.AtMost(time.Minute), schedlock.AtMost(time.Hour), schedlock.AtMost(time.Hour)}
				lockers := []*schedlock.Locker{on[0].locker(), on[1].locker(), on[2].locker()}
				_, err := lockers[0].Do(t.Context(), "nightly", noWork, fireTime(1), options[0])
				require.NoError(t, err)
				if c.killed {
					on[0].client.Stall()
				}
				started := make(chan schedlock.Outcome, 1)
				go func() {
					time.Sleep(time.Second)
					res, _ := lockers[c.starter].Do(t.Context(), "nightly", noWork, fireTime(2), options[c.starter])
					started <- res.Outcome
				}()
				asked := time.Now()
				res, err := lockers[1].Do(t.Context(), "nightly", noWork, fireTime(2), options[1])
				require.ErrorIs(t, err, c.err)
				if c.err == nil {
					require.ElementsMatch(t, []schedlock.Outcome{schedlock.Ran, schedlock.Claimed}, []schedlock.Outcome{res.Outcome, <-started})
				} else {
					require.Equal(t, schedlock.NotClaimed, res.Outcome)
					require.LessOrEqual(t, time.Since(asked), 2*time.Second, "until the tick was started")
					require.Equal(t, schedlock.Ran, <-started)
				}
				on[0].client.Heal()
			})
		})
	}
}
