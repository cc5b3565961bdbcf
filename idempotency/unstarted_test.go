package idempotency_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// earlier leaves something at the key before the claim that is lost: nothing, or a release with
// a recovery point. It returns the number of the next attempt.
var earlier = map[string]func(t *testing.T, in instance) int{
	"nothing": func(*testing.T, instance) int { return 1 },
	"a release": func(t *testing.T, in instance) int {
		at := begin(t, in, key("1"))
		_, err := idempotency.Step(at, "s", func(context.Context) (int, error) { return 1, nil })
		require.NoError(t, err)
		require.NoError(t, at.Release(ctxT(t)))
		return 2
	},
}

// A claim is applied, its answer is lost, and so is the lease: the call knows that its function
// was never called, and claims again. Under Refuse nothing is unknown.
func TestClaimLostWithItsLease(t *testing.T) {
	t.Parallel()
	for before, leave := range earlier {
		t.Run("after "+before, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			opts := &idempotency.Options{OnLost: idempotency.Refuse}
			a, b := f.instance(nil, opts), f.instance(nil, opts)
			number := leave(t, b)
			lease := a.sess.Lease()
			inj := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Do: embedtest.DropResponse, After: func() {
				if err := f.ExpireLease(ctxT(t), lease); err != nil {
					t.Error(err)
				}
			}})
			calls := 0
			res, err := idempotency.Do(ctxT(t), a.Store, key("1"), "payload", func(_ context.Context, at *idempotency.Attempt) (int, error) {
				calls++
				return idempotency.Step(at, "s", func(context.Context) (int, error) { return number, nil })
			})
			require.NoError(t, err)
			require.Equal(t, 1, inj.Hits())
			require.NotEqual(t, lease, a.sess.Lease())
			require.Equal(t, 1, calls)
			require.Equal(t, number, res.Attempt, "the claim that was lost was no attempt")
			require.Equal(t, 1, res.Value, "the recovery points of before are there")
			require.Zero(t, a.Stats().Unknown)
			require.Equal(t, "1", string(replayed(t, b, key("1")).Value))
			require.Empty(t, f.working())
		})
	}
}

// The same, and the caller has given up meanwhile: the record is restored, so that the request is not
// unknown to other processes either.
func TestClaimGivenUpAndLost(t *testing.T) {
	t.Parallel()
	for before, leave := range earlier {
		for _, released := range []bool{false, true} { // the answer comes in the end, or never
			t.Run("after "+before, func(t *testing.T) {
				t.Parallel()
				f := shared(t)
				opts := &idempotency.Options{OnLost: idempotency.Refuse}
				a, b := f.instance(nil, opts), f.instance(nil, opts)
				number := leave(t, b)
				inj := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Do: embedtest.HoldResponse, After: func() {
					if err := f.ExpireLease(ctxT(t), a.sess.Lease()); err != nil {
						t.Error(err)
					}
				}})
				short, cancel := context.WithCancel(ctxT(t))
				done := make(chan error, 1)
				go func() {
					_, _, err := a.Begin(short, key("1"), "payload")
					done <- err
				}()
				require.NoError(t, inj.WaitHit(ctxT(t)))
				cancel()
				require.ErrorIs(t, got(t, done, "the call returns"), context.Canceled)
				// Its own process knows, before it has taken it back and after.
				at, _, err := a.Begin(ctxT(t), key("1"), "payload", idempotency.Wait(0))
				require.NotErrorIs(t, err, idempotency.ErrUnknown)
				if at != nil {
					require.NoError(t, at.Release(ctxT(t)))
				}
				next := make(chan *idempotency.Attempt, 1)
				go func() {
					at, _, err := a.Begin(ctxT(t), key("1"), "payload")
					if err != nil {
						t.Error(err)
					}
					next <- at
				}()
				if released {
					_ = inj.Release()
				}
				at = got(t, next, "the next call's attempt")
				require.Equal(t, number, at.Attempt())
				require.Zero(t, a.Stats().Unknown)
				require.NoError(t, at.Release(ctxT(t)))
				r, _, err := b.Get(ctxT(t), b.Ref(key("1")))
				require.True(t, number == 1 && errors.Is(err, idempotency.ErrNotFound) || err == nil && r.State == idempotency.Released, "%+v: %v", r, err)
				at = begin(t, b, key("1"))
				require.NoError(t, at.Commit(ctxT(t), nil))
			})
		}
	}
}
