package idempotency_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

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
		"run": func() error {
			return a.Run(ctx, func(context.Context) ([]byte, error) { t.Error("it runs"); return nil, nil })
		},
	} {
		err := call()
		require.ErrorIs(t, err, idempotency.ErrInvalid)
		require.ErrorContains(t, err, "idempotency: "+name+" an attempt: ")
		require.ErrorContains(t, err, "Begin has returned an Outcome to replay in its place")
	}
}
