package schedlock_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A243: the Txn of a Pause is lost, and before it is sent again another process requests a run, which writes the same key.
// The job is paused when Pause returns, and not when Resume returns.
func TestPauseBesideARequest(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	_, err := a.Do(ctx, "job", nothing, schedlock.Tick(tick(1)))
	require.NoError(t, err)
	beside := func(change func(context.Context, string) error) {
		t.Helper()
		lost := a.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.FailWith, Match: func(_ string, msg any) bool {
			r, ok := msg.(*etcdserverpb.TxnRequest)
			return ok && len(r.Success) > 0 && strings.HasSuffix(string(r.Success[0].GetRequestPut().GetKey()), "/operation")
		}, Before: func() {
			_, err := b.RequestRun(ctx, "job", "")
			assert.NoError(t, err)
		}})
		require.NoError(t, change(ctx, "job"))
		require.Equal(t, 1, lost.Hits())
	}
	paused := func() bool {
		st, err := b.Status(ctx, "job")
		require.NoError(t, err)
		return st.Paused != nil
	}
	pause := func(ctx context.Context, name string) error { return a.Pause(ctx, name, "moving house") }
	beside(pause)
	require.True(t, paused(), "the first operation")
	beside(a.Resume)
	require.False(t, paused())
	_, err = b.RequestRun(ctx, "job", "")
	require.NoError(t, err)
	beside(pause)
	require.True(t, paused(), "after a request")
}
