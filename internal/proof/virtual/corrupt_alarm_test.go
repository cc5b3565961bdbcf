package virtual

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A753: at the fire time of a cron library etcd has an alarm, NOSPACE or CORRUPT, which an operator disarms. The tick starts then.
// Under CORRUPT it was left out at once.
func TestTickDuringAnAlarm(t *testing.T) {
	t.Parallel()
	for name, alarm := range map[string]error{"NOSPACE": rpctypes.ErrGRPCNoSpace, "CORRUPT": rpctypes.ErrGRPCCorrupt} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d := on[0]
				job, err := d.locker().Job("night", schedlock.Periods(time.Hour), noWork)
				require.NoError(t, err)
				time.Sleep(time.Until(job.Next(time.Now())))
				refused, disarm := d.refuse(alarm, func(m etcdfake.Message) bool { return m.Method == "Txn" })
				time.AfterFunc(30*time.Second, disarm)
				res, err := job.RunContext(within(t, 10*time.Minute))
				require.NoError(t, err)
				require.Equal(t, schedlock.Ran, res.Outcome)
				require.Greater(t, refused.Load(), int64(1))
			})
		})
	}
}
