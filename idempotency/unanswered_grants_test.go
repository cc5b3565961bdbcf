package idempotency_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/embedtest"
)

// A349: a grant that is repeated because its answer was lost grants one lease.
func TestUnansweredGrants(t *testing.T) {
	t.Parallel()
	f := own(t)
	leases := func() int {
		all, err := f.Client().Leases(ctxT(t))
		require.NoError(t, err)
		return len(all.Leases)
	}
	execute := func(id string, faults ...embedtest.Fault) {
		a := f.instance(nil, nil)
		for _, fault := range faults {
			a.client.Inject(fault)
		}
		at := begin(t, a, key(id))
		require.NoError(t, at.Commit(ctxT(t), nil))
		require.NoError(t, a.sess.Close(ctxT(t)))
	}
	execute("1")
	usual := leases() // with the outcome
	execute("2", embedtest.Fault{Method: "LeaseGrant", Do: embedtest.DropResponse, Times: 2})
	require.Equal(t, 2*usual, leases())
}
