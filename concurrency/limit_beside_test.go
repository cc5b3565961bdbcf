package concurrency_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// A244: the Txn of a change is lost, and before it is sent again a program stores the limit that it was built with, because
// there is none. When the change returns, its limit is in force.
func TestChangeBesideTheFirstProgram(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	admin, client := f.Session(nil)
	program, _ := f.Session(nil)
	lost := func(key string, first func() error) *embedtest.Injection {
		return client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.FailWith, Match: func(_ string, msg any) bool {
			r, ok := msg.(*etcdserverpb.TxnRequest)
			return ok && len(r.Success) > 0 && strings.HasSuffix(string(r.Success[0].GetRequestPut().GetKey()), key)
		}, Before: func() { assert.NoError(t, first()) }})
	}
	acquires := func(sm *concurrency.Semaphore) func() error {
		return func() error {
			return sm.Do(ctx, func(context.Context, *concurrency.Permit) error { return nil })
		}
	}
	sm := sem(t, program, "x", 3)
	inj := lost("/limit", acquires(sm))
	require.NoError(t, sem(t, admin, "x", 2).SetLimit(ctx, 2, concurrency.CreateLimit()))
	st, err := sm.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, 2, st.Limit)
	require.Equal(t, 1, inj.Hits())

	lim := keyed(t, program, "tenants", 3)
	inj = lost("/default", acquires(lim.Key("acme")))
	require.NoError(t, keyed(t, admin, "tenants", 2).SetDefault(ctx, 2, concurrency.CreateLimit()))
	st, err = lim.Key("acme").Status(ctx)
	require.NoError(t, err)
	require.Equal(t, 2, st.Limit)
	require.Equal(t, 1, inj.Hits())
}
