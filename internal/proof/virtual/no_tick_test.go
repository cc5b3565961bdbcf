package virtual

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A635: a call of Do without a tick that starts a job just after one of another process is logged, once. Two calls of one process,
// those with ticks, and those that are far apart are not.
func TestCallsWithoutATick(t *testing.T) {
	t.Parallel()
	at := func(n int) func(int) []schedlock.CallOption {
		return func(call int) []schedlock.CallOption {
			return []schedlock.CallOption{schedlock.Tick(time.Unix(946684800+int64(call/n), 0))}
		}
	}
	none := func(int) []schedlock.CallOption { return nil }
	for name, c := range map[string]struct {
		opts  func(call int) []schedlock.CallOption
		by    []int // the desks that call
		pause time.Duration
		runs  int
		said  int
	}{
		"two processes":             {none, []int{0, 1, 0, 1}, 100 * time.Millisecond, 4, 2}, // each says it once
		"one process":               {none, []int{0, 0, 0, 0}, 100 * time.Millisecond, 4, 0},
		"two processes, far apart":  {none, []int{0, 1, 0, 1}, 30*time.Second + time.Millisecond, 4, 0},
		"two processes, one tick":   {at(2), []int{0, 1, 0, 1}, 1100 * time.Millisecond, 2, 0},
		"two processes, two ticks":  {at(1), []int{0, 1, 0, 1}, 1100 * time.Millisecond, 4, 0},
		"two processes, with Every": {func(int) []schedlock.CallOption { return []schedlock.CallOption{schedlock.Every(time.Hour)} }, []int{0, 1}, 100 * time.Millisecond, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, on []*desk) {
				core, logs := observer.New(zap.WarnLevel)
				lockers := make([]*schedlock.Locker, len(on))
				for i, d := range on {
					d.open(concurrency.SessionOptions{Logger: zap.New(core)})
					lockers[i] = d.locker()
				}
				runs := 0
				for call, by := range c.by {
					time.Sleep(c.pause)
					res, err := lockers[by].Do(t.Context(), "job", noWork, c.opts(call)...)
					require.NoError(t, err)
					if res.Outcome == schedlock.Ran {
						runs++
					}
				}
				require.Equal(t, c.runs, runs)
				require.Equal(t, c.said, logs.FilterMessageSnippet("a call without a tick has started a job just after another process did").Len())
				require.Equal(t, c.said, logs.Len())
			})
		})
	}
}
