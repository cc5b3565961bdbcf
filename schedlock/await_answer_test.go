package schedlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

// refuseEnds has etcd refuse to record the ends of an instance's runs.
func (in instance) refuseEnds() *embedtest.Injection {
	return in.client.Inject(embedtest.Fault{Method: "Txn", Match: isFinish, Times: -1, Do: embedtest.FailWith, Err: rpctypes.ErrGRPCPermissionDenied})
}

// A251: the job is unlocked while a call waits for the record of its failure. The run was lost, not confirmed.
func TestUnlockedBeforeTheFailureIsRecorded(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	in, other := f.instance(patient(), nil), f.instance(nil, nil)
	refused := in.refuseEnds()
	fn := failing{fails: 1}
	end := make(chan answer, 1)
	go func() {
		res, err := in.Do(ctx, "job", fn.run, schedlock.Tick(tick(1)), schedlock.RetryFailed(3, pause))
		end <- answer{res, err}
	}()
	require.Eventually(t, func() bool {
		rec, err := in.Get(ctx, "job", tick(1))
		return err == nil && rec.State == schedlock.RunUnconfirmed
	}, soon, 5*time.Millisecond)
	require.NoError(t, other.Unlock(ctx, "job", "for the test"))
	refused.Remove()
	a := got(t, end, "the call returns")
	require.Equal(t, []any{schedlock.Lost, 1}, []any{a.res.Outcome, a.res.Attempt})
	require.ErrorIs(t, a.err, errDown)
	require.ErrorIs(t, a.err, schedlock.ErrLost)
	require.NoError(t, a.res.Unconfirmed)
	require.EqualValues(t, 1, fn.calls.Load())
	rec, err := in.Get(ctx, "job", tick(1))
	require.NoError(t, err)
	require.Equal(t, schedlock.RunUnlocked, rec.State)
}
