package virtual

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/schedlock"
)

// nextStart calls Do every 5 ms for one fire time after the other, until one is started, and
// returns when that was. All others find the job running.
func nextStart(t *testing.T, l *schedlock.Locker, first int, opts ...schedlock.CallOption) (at time.Time) {
	t.Helper()
	begun := time.Now()
	for n := first; ; n++ {
		res, err := l.Do(t.Context(), "job", func(context.Context, *schedlock.Run) error { at = time.Now(); return nil },
			append(opts, fireTime(n))...)
		require.NoError(t, err)
		if res.Outcome == schedlock.Ran {
			return at
		}
		require.Equal(t, schedlock.StillRunning, res.Outcome)
		require.Less(t, time.Since(begun), time.Hour)
		time.Sleep(5 * time.Millisecond)
	}
}

// AtLeast holds to the moment while the process lives, and no less when it has gone: then until the
// end of a lease, which etcd counts in whole seconds.
func TestAtLeast(t *testing.T) {
	t.Parallel()
	const least = 4500 * time.Millisecond
	for how, c := range map[string]struct {
		goes  func(*desk)
		later time.Duration
	}{
		"lives":   {func(*desk) {}, 0},
		"closes":  {func(d *desk) { d.close(time.Second) }, 3 * time.Second},
		"crashes": {func(d *desk) { d.client.Stall() }, 3 * time.Second},
	} {
		t.Run(how, func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, on []*desk) {
				a, b := on[0].locker(), on[1].locker()
				var begun time.Time
				res, err := a.Do(t.Context(), "job", func(context.Context, *schedlock.Run) error { begun = time.Now(); return nil },
					fireTime(0), schedlock.AtLeast(least))
				require.NoError(t, err)
				require.Equal(t, schedlock.Ran, res.Outcome)
				c.goes(on[0])
				time.Sleep(least - time.Second)
				at := nextStart(t, b, 1, schedlock.AtLeast(least))
				require.WithinRange(t, at, begun.Add(least), begun.Add(least+c.later+100*time.Millisecond))
			})
		})
	}
}

// The answer to a claim comes when its AtLeast has passed already. AtLeast counts from the
// start all the same.
func TestAtLeastAfterALateAnswer(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		a, b := on[0].locker(), on[1].locker()
		const least, late = time.Second, 4 * time.Second
		_, err := b.Do(t.Context(), "job", noWork, fireTime(0), schedlock.AtLeast(least))
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.Empty(t, on[0].jobKeys("/cooldown"))
		var claims atomic.Int64
		on[0].client.Inject(func(m etcdfake.Message) etcdfake.Fault {
			txn, ok := m.Body.(*pb.TxnRequest)
			if !ok || len(txn.Success) == 0 || !strings.HasSuffix(string(txn.Success[0].GetRequestPut().GetKey()), "/lock") || claims.Add(1) > 1 {
				return etcdfake.Fault{}
			}
			return etcdfake.Fault{ResponseDelay: late}
		})
		sent := time.Now()
		var begun time.Time
		res, err := a.Do(t.Context(), "job", func(context.Context, *schedlock.Run) error { begun = time.Now(); return nil },
			fireTime(1), schedlock.AtLeast(least))
		require.NoError(t, err)
		require.Equal(t, schedlock.Ran, res.Outcome)
		require.GreaterOrEqual(t, begun.Sub(sent), late)
		at := nextStart(t, b, 2, schedlock.AtLeast(least))
		require.WithinRange(t, at, begun.Add(least), begun.Add(least+100*time.Millisecond))
	})
}
