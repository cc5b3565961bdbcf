package virtual

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/schedlock"
)

// S5: the session's lease ends before the end of a run was recorded. The call has returned the
// function's result, or returns it then. Other processes see the run as lost, and Retries lets
// them start its tick again; the process in which it ended does not.
func TestEndThatCannotBeRecorded(t *testing.T) {
	t.Parallel()
	for name, timeout := range map[string]time.Duration{"the call waits for the lease": time.Hour, "the call has returned": time.Second} {
		for how, away := range aways {
			t.Run(name+", "+how, func(t *testing.T) {
				bubble(t, 2, func(t *testing.T, on []*desk) {
					core, lines := observer.New(zapcore.WarnLevel)
					on[0].open(concurrency.SessionOptions{ReleaseTimeout: timeout, Logger: zap.New(core)})
					a, b := on[0].locker(), on[1].locker()
					opts := []schedlock.CallOption{fireTime(1), schedlock.Retries(1)}
					var returned time.Time
					res, err := a.Do(t.Context(), "job", func(_ context.Context, r *schedlock.Run) error {
						away(on[0].client)
						returned = time.Now()
						return r.Err()
					}, opts...)
					require.NoError(t, err)
					require.Equal(t, schedlock.Ran, res.Outcome)
					var u *schedlock.UnconfirmedError
					require.ErrorAs(t, res.Unconfirmed, &u)
					require.ErrorIs(t, u, schedlock.ErrUnconfirmed)
					require.NotErrorIs(t, u, schedlock.ErrLost)
					require.Equal(t, []any{res.Job, res.Attempt, res.Token}, []any{u.Job, u.Attempt, u.Token})
					lost := on[0].begun.Add(ttl - margin)
					if timeout > ttl {
						require.Equal(t, lost, time.Now())
						require.ErrorContains(t, u, "not renewed in time")
						require.Empty(t, lines.FilterMessageSnippet("was not recorded").All())
					} else {
						require.Equal(t, returned.Add(timeout), time.Now())
						time.Sleep(time.Until(lost) + 1)
						require.Len(t, lines.FilterMessageSnippet("was not recorded before its session ended").All(), 1)
					}
					require.Len(t, on[1].jobKeys("/lock"), 1)
					time.Sleep(time.Until(on[0].begun.Add(ttl)))
					require.Empty(t, on[1].jobKeys("/lock"))
					recorded := func(l *schedlock.Locker, want schedlock.State, attempt int) {
						t.Helper()
						h, err := l.Get(t.Context(), "job", res.Tick)
						require.NoError(t, err)
						require.Equal(t, []any{want, attempt}, []any{h.State, h.Attempt})
					}
					recorded(b, schedlock.RunLost, 1)

					on[0].client.Heal()
					recorded(a, schedlock.RunUnconfirmed, 1)
					again, err := a.Do(t.Context(), "job", noWork, opts...)
					require.NoError(t, err)
					require.Equal(t, schedlock.Claimed, again.Outcome)

					again, err = b.Do(t.Context(), "job", noWork, opts...)
					require.NoError(t, err)
					require.Equal(t, []any{schedlock.Ran, 2}, []any{again.Outcome, again.Attempt})
					recorded(a, schedlock.RunDone, 2)
				})
			})
		}
	}
}
