package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
)

// Q1: under Refuse a request runs at most once, whatever ended the attempt, and the log of its process
// says at once that it waits for an operator, and why.
func TestRefuseMeansAtMostOnce(t *testing.T) {
	t.Parallel()
	f := shared(t)
	core, logs := observer.New(zap.WarnLevel)
	in := f.instance(&concurrency.SessionOptions{Logger: zap.New(core)}, &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse})
	forget := idempotency.OnError(func(error) idempotency.Action { return idempotency.Forget })
	timeout := errors.New("the provider did not answer in time")
	for _, c := range []struct {
		name    string
		opts    []idempotency.Option
		fn      func(a *idempotency.Attempt) error
		because string
	}{
		{"an error", nil, func(*idempotency.Attempt) error { return timeout }, timeout.Error()},
		{"an error that OnError forgets", []idempotency.Option{forget}, func(*idempotency.Attempt) error { return timeout }, timeout.Error()},
		{"a callee's word", nil, func(*idempotency.Attempt) error { return fmt.Errorf("notify: %w", idempotency.NothingDone(timeout)) }, "a NothingDone within another error does not count"},
		{"a panic", nil, func(*idempotency.Attempt) error { panic("no") }, "panic: no"},
		{"a panic that OnPanic forgets", []idempotency.Option{idempotency.OnPanic(idempotency.Forget)}, func(*idempotency.Attempt) error { panic("no") }, "panic: no"},
		{"an unmet condition", nil, func(a *idempotency.Attempt) error {
			a.Attach([]clientv3.Cmp{clientv3.Compare(clientv3.Version("none"), ">", 0)})
			return nil
		}, "a condition given to Attach is not met"},
		{"what is no Action", []idempotency.Option{idempotency.OnError(func(error) idempotency.Action { return 17 })}, func(*idempotency.Attempt) error { return timeout }, timeout.Error()},
		{"another request's word", nil, func(a *idempotency.Attempt) error {
			_, err := idempotency.Do(a.Context(), in.Store, key("within"), nil, func(context.Context, *idempotency.Attempt) (int, error) {
				return 0, idempotency.NothingDone(idempotency.NothingDone(timeout))
			})
			return err
		}, timeout.Error()},
		{"its own end", nil, func(a *idempotency.Attempt) error { return a.Abandon(ctxT(t)) }, ""},
	} {
		calls := 0
		run := func(opts ...idempotency.Option) error {
			defer func() { _ = recover() }()
			_, err := idempotency.Do(ctxT(t), in.Store, key(c.name), nil, func(_ context.Context, a *idempotency.Attempt) (int, error) {
				calls++
				return 0, c.fn(a)
			}, opts...)
			return err
		}
		_ = run(c.opts...)
		said := logs.FilterMessageSnippet("what it did is not known").FilterField(zap.String("ref", string(in.Ref(key(c.name))))).All()
		require.Len(t, said, 1, c.name)
		require.Contains(t, said[0].ContextMap()["because"], c.because, c.name)
		// A later call's policy does not count.
		require.ErrorIs(t, run(append(c.opts, idempotency.OnLost(idempotency.TakeOver))...), idempotency.ErrUnknown, c.name)
		require.Equal(t, 1, calls, c.name)
	}
}

// The policy of the first attempt stays with the record: an attempt after an operator's NotDone is under
// Refuse, too, whatever its own call says.
func TestRefuseAfterNotDone(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, &idempotency.Options{SingleTenant: true})
	calls := 0
	do := func(p idempotency.LostPolicy) error {
		_, err := idempotency.Do(ctxT(t), in.Store, key("1"), nil, func(context.Context, *idempotency.Attempt) (int, error) {
			calls++
			return 0, errors.New("no")
		}, idempotency.OnLost(p))
		return err
	}
	failed := func(err error) {
		t.Helper()
		require.EqualError(t, err, "no")
		require.ErrorIs(t, err, idempotency.ErrUnknown)
	}
	failed(do(idempotency.Refuse))
	for n := range 2 {
		require.ErrorIs(t, do(idempotency.TakeOver), idempotency.ErrUnknown)
		require.NoError(t, in.Resolve(ctxT(t), in.Ref(key("1")), idempotency.NotDone(), idempotency.EvenIfAlive()))
		failed(do(idempotency.TakeOver))
		require.Equal(t, n+2, calls)
	}
}

// A value without JSON beside a condition that is not met is neither recorded nor in progress for ever.
func TestNoJSONAndAnUnmetCondition(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse})
	_, err := idempotency.Do(ctxT(t), in.Store, key("1"), nil, func(_ context.Context, a *idempotency.Attempt) (any, error) {
		a.Attach([]clientv3.Cmp{clientv3.Compare(clientv3.Version("none"), ">", 0)})
		return math.NaN(), nil
	})
	require.ErrorIs(t, err, idempotency.ErrConflict)
	require.ErrorIs(t, err, idempotency.ErrInvalid)
	_, _, err = in.Begin(ctxT(t), key("1"), nil, idempotency.Wait(0))
	require.ErrorIs(t, err, idempotency.ErrUnknown)
}

// The function's own word counts under both policies, whatever OnError is.
func TestWordsOfTheFunction(t *testing.T) {
	t.Parallel()
	f := shared(t)
	no := errors.New("no")
	for _, policy := range []idempotency.LostPolicy{idempotency.TakeOver, idempotency.Refuse} {
		in := f.instance(nil, &idempotency.Options{SingleTenant: true, OnLost: policy})
		do := func(id string, result error) (called bool, err error) {
			_, err = idempotency.Do(ctxT(t), in.Store, key(fmt.Sprint(id, policy)), nil, func(context.Context, *idempotency.Attempt) (int, error) {
				called = true
				return 1, result
			}, idempotency.OnError(func(error) idempotency.Action { return idempotency.Abandon }))
			return called, err
		}
		_, err := do("released", idempotency.NothingDone(no))
		require.ErrorIs(t, err, no)
		called, err := do("released", nil)
		require.NoError(t, err)
		require.True(t, called)

		_, err = do("failed", fmt.Errorf("charge: %w", idempotency.Permanent(no)))
		require.ErrorIs(t, err, no)
		called, err = do("failed", nil)
		var failed *idempotency.FailedError
		require.ErrorAs(t, err, &failed)
		require.False(t, called)
		require.Equal(t, "charge: no", failed.Outcome.Failure)
	}
}

// A call with Refuse never learns that it may run without a claim: another process may have done the
// request. An attempt that is settled runs no function.
func TestRefuseIsNotUnseen(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, &idempotency.Options{SingleTenant: true})
	a := begin(t, in, key("settled"))
	require.NoError(t, a.Commit(ctxT(t), nil))
	require.ErrorIs(t, a.Run(ctxT(t), func(context.Context) ([]byte, error) { panic("it runs") }), idempotency.ErrSettled)
	in.client.Cut()
	for policy, unseen := range map[idempotency.LostPolicy]bool{idempotency.TakeOver: true, idempotency.Refuse: false} {
		ctx, cancel := context.WithTimeout(ctxT(t), 50*time.Millisecond)
		_, _, err := in.Begin(ctx, key("1"), nil, idempotency.OnLost(policy))
		cancel()
		require.Error(t, err)
		require.Equal(t, unseen, errors.Is(err, idempotency.ErrUnseen), "%v: %v", policy, err)
	}
}

// V28: the failure of a request within another one is final for both, when it is recorded and when it is replayed.
func TestFailureOfARequestWithin(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse})
	charge := func(ctx context.Context) error {
		_, err := idempotency.Do(ctx, in.Store, key("charge"), nil, func(context.Context, *idempotency.Attempt) (int, error) {
			return 0, idempotency.Permanent(errors.New("the card is stolen"))
		})
		return err
	}
	for _, outer := range []string{"the first order", "the second order"} {
		order := func() error {
			_, err := idempotency.Do(ctxT(t), in.Store, key(outer), nil, func(ctx context.Context, _ *idempotency.Attempt) (int, error) { return 0, charge(ctx) })
			return err
		}
		require.ErrorContains(t, order(), "the card is stolen")
		require.ErrorIs(t, order(), idempotency.ErrFailed, outer)
	}
}
