package idempotency_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// etcd says that it has no space after it has applied a release, and another attempt has begun since. The release
// has released its own attempt: it is not fenced.
func TestReleaseThatIsOvertakenAfterNoSpace(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	at := begin(t, a, key("1"))
	_, err := idempotency.Step(at, "one", func(context.Context) (int, error) { return 1, nil }) // so that the release puts
	require.NoError(t, err)
	inj := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isCommit, Do: embedtest.DropResponse, Err: rpctypes.ErrGRPCNoSpace,
		After: func() {
			if next, _, err := b.Begin(context.Background(), key("1"), "payload"); err != nil || next == nil {
				t.Error(err)
			}
		}})
	require.NoError(t, at.Release(ctxT(t)))
	require.Equal(t, 1, inj.Hits())
	require.EqualValues(t, 1, a.Stats().Released)
	require.Zero(t, a.Stats().Fenced)
}
