package virtual

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A338: a call withdraws a claim, since the answer came when its cooldown had passed, and claims the tick again. After a failure
// of that run the pause of RetryFailed counts as for any other call, and the withdrawn claim is no attempt.
func TestPauseAfterAWithdrawnClaim(t *testing.T) {
	t.Parallel()
	for withdrawn := range int64(3) {
		bubble(t, 2, func(t *testing.T, on []*desk) {
			a, b := on[0].locker(), on[1].locker()
			const least, pause = time.Second, 10 * time.Minute
			opts := []schedlock.CallOption{schedlock.AtLeast(least), schedlock.RetryFailed(1, pause)}
			_, err := b.Do(t.Context(), "job", noWork, append(opts, fireTime(0))...)
			require.NoError(t, err)
			time.Sleep(time.Minute)
			var claims atomic.Int64
			on[0].client.Inject(func(m etcdfake.Message) etcdfake.Fault {
				txn, ok := m.Body.(*pb.TxnRequest)
				if !ok || len(txn.Success) == 0 || !strings.HasSuffix(string(txn.Success[0].GetRequestPut().GetKey()), "/lock") || claims.Add(1) > withdrawn {
					return etcdfake.Fault{}
				}
				return etcdfake.Fault{ResponseDelay: 4 * time.Second}
			})
			var starts []time.Time
			var attempts []int
			failed := errors.New("failed")
			res, err := a.Do(t.Context(), "job", func(_ context.Context, r *schedlock.Run) error {
				starts, attempts = append(starts, time.Now()), append(attempts, r.Attempt())
				return failed
			}, append(opts, fireTime(1))...)
			require.ErrorIs(t, err, failed)
			require.Equal(t, []int{1, 2}, attempts)
			require.Equal(t, []any{schedlock.Failed, 2}, []any{res.Outcome, res.Attempt})
			require.GreaterOrEqual(t, starts[1].Sub(starts[0]), pause)
		})
	}
}
