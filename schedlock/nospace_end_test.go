package schedlock_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

// etcd answers the Put that fills its quota with "no space" and applies it all the same. Then the
// end is recorded, and nothing is lost.
func TestEndThatFillsEtcd(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in, lines := f.logged(patient(), nil)
	in.client.Inject(embedtest.Fault{Method: "Txn", Match: isFinish, Do: embedtest.DropResponse, Err: rpctypes.ErrGRPCNoSpace})
	res, err := in.Do(ctxT(t), "job", nothing, schedlock.Tick(tick(1)))
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, res.Outcome)
	require.NoError(t, in.sess.Close(ctxT(t)))
	require.NotContains(t, messages(lines), "a run was lost before its end was recorded")
}
