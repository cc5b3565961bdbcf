package concurrency_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/embedtest"
)

// S6: a change of the limit whose answer was lost, and before which another came,
// must not write that other one over when it settles itself.
func TestTrapS6SettleUndoesNothing(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, ac := f.session(nil)
	b, _ := f.session(nil)
	sa, sb := sem(t, a, "x", 5), sem(t, b, "x", 5)
	p := acquire(t, ctx, sb)

	// A's request to lower to 2 is lost; while A does not know, B sets 7.
	ac.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.FailWith})
	hold := ac.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldRequest})
	done := make(chan error, 1)
	go func() { done <- sa.SetLimit(ctx, 2) }()
	require.NoError(t, hold.Wait(ctx))
	require.NoError(t, sb.SetLimit(ctx, 7))
	require.NoError(t, hold.Release())
	require.NoError(t, got(t, done, "A"))
	st, err := sb.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, 7, st.Limit)
	require.NoError(t, p.Release(ctx))
}

// S6: a change that comes before the former one was settled does not forget who
// had been admitted before that. It settles what it finds; where that revision is
// compacted, it hands the doubt on.
func TestTrapS6ChangeOfAnUnsettledLimit(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		next    int
		compact bool
	}{
		"paused": {0, false}, "set again": {1, false}, "raised": {7, false},
		"paused, compacted": {0, true}, "set again, compacted": {1, true}, "raised, compacted": {7, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := own(t, 1)
			ctx := ctxT(t)
			s, _ := f.session(nil)
			admin, ac := f.session(nil)
			sm, control := sem(t, s, "x", 2), sem(t, admin, "x", 2)
			first, second := acquire(t, ctx, sm), acquire(t, ctx, sm)
			w := ask(t, ctx, sm)
			// The limit is read, then the waiter is admitted, then the limit is
			// lowered, and the process that did so dies before it settles that.
			swap := ac.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldRequest})
			ac.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.FailWith, Err: rpctypes.ErrGRPCPermissionDenied})
			done := make(chan error, 1)
			go func() { done <- control.SetLimit(ctx, 1) }()
			require.NoError(t, swap.Wait(ctx))
			require.NoError(t, first.Release(ctx))
			third := granted(t, w, "it fits the limit of 2")
			require.NoError(t, swap.Release())
			require.NoError(t, got(t, done, "lowering"))

			behind := ask(t, ctx, sm)
			if tt.compact {
				_, err := f.Compact(ctx)
				require.NoError(t, err)
			}
			require.NoError(t, sm.SetLimit(ctx, tt.next))
			require.NoError(t, sm.SetLimit(ctx, 0))
			require.NoError(t, second.Release(ctx))
			st, err := sm.Status(ctx)
			require.NoError(t, err)
			require.GreaterOrEqual(t, st.Held, 1, "limit 0, but somebody holds")
			require.Equal(t, third.Token(), st.Holders[0].Token)
			require.NoError(t, third.Err())
			if tt.next == 7 {
				require.NoError(t, granted(t, behind, "it fits the limit of 7").Release(ctx))
				return
			}
			waiting(t, behind, "it was never admitted")
			require.NoError(t, third.Release(ctx))
			st, err = sm.Status(ctx)
			require.NoError(t, err)
			if !tt.compact { // else the waiter may have held, for all that is known
				require.Zero(t, st.Held, "the barrier comes")
			}
		})
	}
}
