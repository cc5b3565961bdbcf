package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// Many requests are counted by what becomes of them (D20): with TakeOver, --failed is final for requests that the next
// duplicate would execute again, and neither the list nor the question said so.
func TestPlanOfMany(t *testing.T) {
	t.Parallel()
	of := func(refuse, alive bool, n int) (all []idempotency.Record) {
		for range n {
			all = append(all, idempotency.Record{State: idempotency.Unknown, Refuse: refuse, Alive: alive})
		}
		return all
	}
	found := append(append(append(of(false, false, 2), of(true, false, 3)...), of(true, true, 1)...), of(false, true, 1)...)
	failed, again := account{what: idempotency.HasFailed("x")}, account{what: idempotency.NotDone(), again: true}
	const refuse, takeOver, lives = "refuse", "take-over", "none: the process lives"
	const replayed, final = "duplicates get the failure; they would be refused", "duplicates get the failure for good; the next one would do the work again"
	const runs, asBefore = "the next duplicate does the work; it would be refused", "none: the next duplicate does the work, as it would"
	for _, tt := range []struct {
		what  account
		force bool
		want  []alike
	}{
		{failed, false, []alike{{"unknown", refuse, false, 3, replayed}, {"unknown", refuse, true, 1, lives}, {"unknown", takeOver, false, 2, final}, {"unknown", takeOver, true, 1, lives}}},
		{again, false, []alike{{"unknown", refuse, true, 1, lives}, {"unknown", refuse, false, 3, runs}, {"unknown", takeOver, false, 2, asBefore}, {"unknown", takeOver, true, 1, lives}}},
		{again, true, []alike{{"unknown", refuse, false, 3, runs}, {"unknown", refuse, true, 1, runs}, {"unknown", takeOver, false, 2, asBefore}, {"unknown", takeOver, true, 1, asBefore}}},
	} {
		require.ElementsMatch(t, tt.want, planOf(found, tt.what, tt.force))
	}
	require.Empty(t, planOf(nil, failed, false))
}

// If etcd refuses in the middle, the verb prints which requests are resolved and which are not, and the same command
// continues (D20): it printed a number, and nothing else.
func TestResolveManyStopsMidway(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.storeOf("web-7", "orders", nil)
	for _, id := range []string{"1", "2", "3"} {
		f.lost("orders", order(id))
	}
	var written, allowed atomic.Int64
	allowed.Store(1)
	denies := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if txn, ok := req.(*etcdserverpb.TxnRequest); ok && len(txn.Success) > 0 && strings.Contains(string(txn.Success[0].GetRequestPut().GetKey()), "/r/") && written.Add(1) > allowed.Load() {
			return rpctypes.ErrGRPCPermissionDenied
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	resolve := func() (resolved, string, error) {
		var errs bytes.Buffer
		a := f.app(&errs, grpc.WithChainUnaryInterceptor(denies))
		a.yes, a.output = true, "json"
		v := &resolving{app: a, which: examined{store: "orders"}, many: bulk{state: "unknown"}, found: account{what: idempotency.HasFailed("x"), text: "has failed"}}
		err := v.all(testkit.Context(t))
		var out resolved
		require.NoError(t, json.Unmarshal(a.std.Out.(*bytes.Buffer).Bytes(), &out))
		return out, errs.String(), err
	}
	out, _, err := resolve()
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
	require.ErrorContains(t, err, "1 of 3 requests are resolved, "+string(out.Left[0])+" may be, and those after it are as before; the same command continues")
	require.Len(t, out.Resolved, 1)
	require.Len(t, out.Left, 2)
	require.Empty(t, out.Refused)
	r, _, err := s.Get(testkit.Context(t), out.Resolved[0])
	require.NoError(t, err)
	require.Equal(t, idempotency.Failed, r.State)

	allowed.Store(10)
	again, errs, err := resolve()
	require.NoError(t, err)
	require.ElementsMatch(t, out.Left, again.Resolved)
	require.Contains(t, errs, "EFFECT")
	require.Contains(t, errs, "duplicates get the failure; they would be refused")
}

// V33: of a record that does not say what replays it, the question says that nothing has compared the result.
func TestResultThatNothingCompares(t *testing.T) {
	t.Parallel()
	for via, says := range map[string]bool{"": true, "do": false} {
		f := account{result: always([]byte(`{}`)), text: "was done"}
		require.NoError(t, f.fits(new(examined), idempotency.Record{Via: via}))
		require.Equal(t, says, strings.Contains(f.text, "nothing compares"), via)
	}
}
