package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// D9: a step in a loop, with one name for all, would do the work of the first item and give its value
// to the others. A name counts once in an attempt; the value of an earlier attempt is returned.
func TestStepsOfOneName(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	a, ran := begin(t, in, key("k")), []int{}
	charge := func(a *idempotency.Attempt, name string, item int) (string, error) {
		return idempotency.Step(a, name, func(context.Context) (string, error) {
			ran = append(ran, item)
			return fmt.Sprint("charged ", item), nil
		})
	}
	v, err := charge(a, "charge", 1)
	require.NoError(t, err)
	require.Equal(t, "charged 1", v)
	_, err = charge(a, "charge", 2)
	require.ErrorIs(t, err, idempotency.ErrInvalid)
	require.ErrorContains(t, err, `such as "charge/2"`)
	_, err = charge(a, "charge/2", 2)
	require.NoError(t, err)
	require.Equal(t, []int{1, 2}, ran)
	require.NoError(t, a.Abandon(ctxT(t)))

	a = begin(t, in, key("k"))
	v, err = charge(a, "charge", 3)
	require.NoError(t, err)
	require.Equal(t, "charged 1", v)
	_, err = charge(a, "charge", 4)
	require.ErrorIs(t, err, idempotency.ErrInvalid)
	require.Equal(t, []int{1, 2}, ran)

	// One that failed, or panicked, may be repeated.
	_, err = idempotency.Step(a, "again", func(context.Context) (int, error) { return 0, errors.New("timeout") })
	require.Error(t, err)
	require.Panics(t, func() { _, _ = idempotency.Step(a, "again", func(context.Context) (int, error) { panic("x") }) })
	n, err := idempotency.Step(a, "again", func(context.Context) (int, error) {
		_, within := idempotency.Step(a, "again", func(context.Context) (int, error) { t.Error("at the same time"); return 0, nil })
		require.ErrorIs(t, within, idempotency.ErrInvalid)
		return 5, nil
	})
	require.NoError(t, err)
	require.Equal(t, 5, n)
}

// D18: a step whose put was left in doubt is looked up when that doubt is settled. Its caller tries again, since Step
// has returned an error, and the function ran a second time although etcd had its value. While etcd refuses to settle
// it, no function runs at all.
func TestStepAfterADoubtfulOne(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in, other := f.instance(nil, nil), f.instance(nil, nil)
	a, ran := begin(t, in, key("k")), 0
	step := func(name string) (int, error) {
		return idempotency.Step(a, name, func(context.Context) (int, error) { ran++; return ran, nil })
	}
	lost := in.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropResponse})
	refused := in.client.Inject(embedtest.Fault{Method: "Txn", Times: -1, Do: embedtest.FailWith, Err: rpctypes.ErrGRPCTooManyOps})
	_, err := step("charge")
	require.ErrorIs(t, err, rpctypes.ErrTooManyOps)
	require.Equal(t, 1, lost.Hits())
	require.Equal(t, []string{"charge"}, other.look(t, key("k")).Steps, "etcd has it")
	for _, name := range []string{"charge", "ship"} {
		_, err = step(name)
		require.ErrorIs(t, err, rpctypes.ErrTooManyOps, name)
	}
	require.Equal(t, 1, ran)

	refused.Remove()
	v, err := step("charge")
	require.NoError(t, err)
	require.Equal(t, []int{1, 1}, []int{v, ran}, "the value that was recorded")
	_, err = step("ship")
	require.NoError(t, err)
	require.Equal(t, []string{"charge", "ship"}, other.look(t, key("k")).Steps)
	require.NoError(t, a.Commit(ctxT(t), nil))
}
