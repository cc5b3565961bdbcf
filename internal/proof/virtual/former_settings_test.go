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
