package idempotency_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// The end of a caller's ctx is the ctx's error, whatever its cause: within an attempt of another
// store, whose session was closed or lost, the cause is that session's.
func TestCtxOfAnotherSession(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, &idempotency.Options{CacheBytes: -1})
	begin(t, a, key("busy"))
	require.NoError(t, begin(t, a, key("done")).Commit(ctxT(t), nil))
	done := b.Ref(key("done"))
	calls := map[string]func(context.Context) error{
		"Begin, waiting": func(ctx context.Context) error { _, _, err := b.Begin(ctx, key("busy"), "payload"); return err },
		"Begin, of two waiting": func(ctx context.Context) error {
			both := make(chan error, 2)
			for range 2 {
				go func() { _, _, err := b.Begin(ctx, key("busy"), "payload"); both <- err }()
			}
			err := <-both
			require.ErrorIs(t, <-both, context.Canceled)
			return err
		},
		"Begin, new": func(ctx context.Context) error { _, _, err := b.Begin(ctx, key("new"), "payload"); return err },
		"Begin, likely": func(ctx context.Context) error {
			_, _, err := b.Begin(ctx, key("new"), "payload", idempotency.LikelyNew())
			return err
		},
		"Begin, done": func(ctx context.Context) error { _, _, err := b.Begin(ctx, key("done"), "payload"); return err },
		"Get":         func(ctx context.Context) error { _, _, err := b.Get(ctx, done); return err },
		"Delete":      func(ctx context.Context) error { return b.Delete(ctx, done) },
		"Resolve":     func(ctx context.Context) error { return b.Resolve(ctx, done, idempotency.NotDone()) },
		"Count":       func(ctx context.Context) error { _, err := b.Count(ctx); return err },
		"List": func(ctx context.Context) (err error) {
			for _, err = range b.List(ctx, idempotency.Filter{}) {
			}
			return err
		},
		"Commit": func(ctx context.Context) error {
			at := begin(t, b, key("mine"))
			err := at.Commit(ctx, nil)
			require.ErrorIs(t, err, idempotency.ErrNotRecorded)
			require.Eventually(t, func() bool { return b.Stats().Pending == 0 }, soon, 5*time.Millisecond)
			require.NoError(t, b.Delete(ctxT(t), b.Ref(key("mine"))))
			return err
		},
	}
	try := func(name string, cause error, after time.Duration) {
		t.Helper()
		ctx, cancel := context.WithCancelCause(ctxT(t))
		if after == 0 {
			cancel(cause)
		} else {
			time.AfterFunc(after, func() { cancel(cause) })
		}
		err := calls[name](ctx)
		require.ErrorIs(t, err, context.Canceled, name)
		require.NotErrorIs(t, err, cause, name)
	}
	for _, cause := range []error{idempotency.ErrClosed, idempotency.ErrLost} {
		for name := range calls {
			try(name, cause, 0)
		}
		try("Begin, waiting", cause, 20*time.Millisecond)
		try("Begin, of two waiting", cause, 20*time.Millisecond)
		for _, name := range []string{"Begin, new", "Begin, done", "Get", "Delete", "Resolve", "Count", "List"} {
			held := b.client.Inject(embedtest.Fault{Method: "Range", Do: embedtest.HoldRequest, Times: -1})
			try(name, cause, 20*time.Millisecond)
			held.Remove()
		}
	}
	begin(t, b, key("new")) // the session continues
}

// If the store's own session is closed and the caller's ctx has not ended, the error is ErrClosed.
func TestOwnSessionCloses(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	begin(t, a, key("busy"))
	errs := make(chan error, 2)
	for range 2 {
		go func() { _, _, err := b.Begin(context.Background(), key("busy"), "payload"); errs <- err }()
	}
	require.Eventually(t, func() bool { return idempotency.Flights(b.Store) == 1 }, soon, 5*time.Millisecond)
	require.NoError(t, b.sess.Close(ctxT(t)))
	for range 2 {
		err := got(t, errs, "the end of Begin")
		require.ErrorIs(t, err, idempotency.ErrClosed)
		require.NotErrorIs(t, err, idempotency.ErrUnseen)
	}
}
