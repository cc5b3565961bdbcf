package virtual

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/schedlock"
)

// AtLeast ends too late for a further attempt: the failure of the run is the result at once, and not when LateBy has passed, and so is
// a loss for the call of another process on standby. If it ends in time, the attempt starts then (A564 in
// internal/proof/tested-failures.md).
func TestFailureBeforeACooldownThatEndsTooLate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lateBy   time.Duration
		attempts int
		after    time.Duration // the result
	}{
		"too late": {time.Hour, 1, time.Minute},
		"in time":  {3 * time.Hour, 2, 2*time.Hour + time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, on []*desk) {
				opts := []schedlock.CallOption{schedlock.Tick(time.Now()), schedlock.AtLeast(2 * time.Hour), schedlock.LateBy(c.lateBy), schedlock.RetryFailed(1, time.Second), schedlock.Retries(1)}
				begun, attempts := time.Now(), 0
				fails := func(context.Context, *schedlock.Run) error {
					attempts++
					time.Sleep(time.Minute)
					return errors.New("the database is down")
				}
				standby := make(chan time.Duration, 1)
				go func() {
					time.Sleep(30 * time.Second)
					_, _ = on[1].locker().Do(t.Context(), "job", fails, opts...)
					standby <- time.Since(begun)
				}()
				res, err := on[0].locker().Do(t.Context(), "job", fails, opts...)
				own := time.Since(begun)
				second := <-standby
				require.Equal(t, c.attempts, attempts)
				if own > second { // either of the two makes the further attempt
					own, second = second, own
				}
				require.InDelta(t, c.after.Seconds(), second.Seconds(), 20)
				if c.attempts == 1 {
					require.Equal(t, schedlock.Failed, res.Outcome)
					require.Error(t, err)
				}
			})
		})
	}
}
