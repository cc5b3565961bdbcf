package idempotency_test

import (
	"context"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/idempotency"
)

// A caller that has not looked whether Begin has returned an Outcome to replay gets an error that says so.
func TestNilAttempt(t *testing.T) {
	t.Parallel()
	var a *idempotency.Attempt
	ctx := t.Context()
	for name, call := range map[string]func() error{
		"commit":      func() error { return a.Commit(ctx, []byte("{}")) },
		"fail":        func() error { return a.Fail(ctx, "declined", nil) },
		"release":     func() error { return a.Release(ctx) },
		"abandon":     func() error { return a.Abandon(ctx) },
		"set note of": func() error { return a.SetNote("order 17") },
		"check":       func() error { return a.Err() },
		`step "one" of`: func() error {
			_, err := idempotency.Step(a, "one", func(context.Context) (int, error) { t.Error("it runs"); return 1, nil })
			return err
		},
		"use": func() error { return context.Cause(a.Context()) },
		"attach to": func() (err error) {
			defer func() { err, _ = recover().(error) }()
			a.Attach(nil, clientv3.OpPut("lost", ""))
			return nil
		},
		"run": func() error {
			return a.Run(ctx, func(context.Context) ([]byte, error) { t.Error("it runs"); return nil, nil })
		},
	} {
		err := call()
		require.ErrorIs(t, err, idempotency.ErrInvalid)
		require.ErrorContains(t, err, "idempotency: "+name+" an attempt: ")
		require.ErrorContains(t, err, "Begin has returned an Outcome to replay in its place")
	}
	a.Detach()
	require.Error(t, a.Context().Err())
	require.False(t, a.Certain(nil))
	require.Zero(t, a.Key())
	require.Zero(t, a.Ref())
	require.Zero(t, a.Attempt())
	require.Zero(t, a.Token())
	require.Zero(t, a.Deadline())
	require.NotEqual(t, a.ChildKey("charge"), a.ChildKey("charge"))
	f := shared(t)
	require.False(t, f.guarded(a))
	// No method is left out.
	methods := reflect.TypeFor[*idempotency.Attempt]()
	require.Equal(t, 18, methods.NumMethod(), "a new method needs a rule for nil, and a line above")
}
