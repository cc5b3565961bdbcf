package idempotency_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// free deletes the record of an attempt in progress by hand.
func (f fixture) free(at *idempotency.Attempt) {
	f.T.Helper()
	_, err := f.Client().Delete(ctxT(f.T), f.Keys("/" + string(at.Ref()))[0])
	require.NoError(f.T, err)
}

// A530: etcd refuses a write of an attempt, since another one has the request. The error was ErrFenced, and the context of the
// attempt did not end: its work went on beside that of the other attempt.
func TestFencedWriteEndsTheContext(t *testing.T) {
	t.Parallel()
	ran := false
	step := func(at *idempotency.Attempt) error {
		_, err := idempotency.Step(at, "one", func(context.Context) (int, error) { ran = true; return 1, nil })
		return err
	}
	commit := func(at *idempotency.Attempt) error { return at.Commit(context.Background(), []byte("a")) }
	for name, tt := range map[string]struct {
		doubt bool // about the write before
		write func(at *idempotency.Attempt) error
	}{
		"note":   {false, func(at *idempotency.Attempt) error { return at.SetNote("order 7") }},
		"step":   {false, step},
		"commit": {false, commit},
		"fail":   {false, func(at *idempotency.Attempt) error { return at.Fail(context.Background(), "no", nil) }},
		"step after a doubt": {true, func(at *idempotency.Attempt) error {
			ran = false
			err := step(at)
			require.False(t, ran)
			return err
		}},
		"commit after a doubt": {true, commit},
	} {
		t.Run(name, func(t *testing.T) {
			f := shared(t)
			a, b := f.instance(nil, nil), f.instance(nil, nil)
			at := begin(t, a, key("1"))
			if tt.doubt {
				for _, err := range []error{nil, rpctypes.ErrGRPCNoSpace} {
					a.client.Inject(embedtest.Fault{Method: "Txn", Match: isPutAgain, Do: embedtest.FailWith, Err: err})
				}
				require.ErrorIs(t, rpctypes.Error(at.SetNote("order 6")), rpctypes.ErrNoSpace)
			}
			f.free(at)
			next := begin(t, b, key("1"))
			require.NoError(t, at.Err(), "nothing has said so yet")
			require.ErrorIs(t, tt.write(at), idempotency.ErrFenced)
			for _, cause := range []error{at.Err(), context.Cause(at.Context())} {
				require.ErrorIs(t, cause, idempotency.ErrFenced)
				require.ErrorContains(t, cause, key("1").String())
			}
			require.ErrorIs(t, at.SetNote("order 8"), idempotency.ErrFenced)
			require.NoError(t, next.Commit(ctxT(t), []byte("b")))
			require.Equal(t, "b", string(replayed(t, b, key("1")).Value))
		})
	}
}

// A530: what follows such a write: the loss is reported once, duplicates in the process get the outcome of the other attempt
// although the function has not returned, and the error of the function is that of its step, once. The attempt counts as
// fenced.
func TestAfterAFencedWrite(t *testing.T) {
	t.Parallel()
	for _, policy := range []idempotency.LostPolicy{idempotency.TakeOver, idempotency.Refuse} {
		f, hooks, opts := shared(t), &testkit.Recorder{}, brisk()
		opts.Hooks = hooks.Hooks()
		a, b := f.instance(opts, nil), f.instance(nil, nil)
		returns, written := make(chan struct{}), make(chan error, 1)
		done := make(chan error, 1)
		go func() {
			_, err := idempotency.Do(ctxT(t), a.Store, key("1"), "payload", func(ctx context.Context, at *idempotency.Attempt) (int, error) {
				f.free(at)
				if err := begin(t, b, key("1"), idempotency.OnLost(policy)).Commit(ctx, []byte("2")); err != nil {
					return 0, err
				}
				err := at.SetNote("order 7")
				<-ctx.Done()
				written <- err
				<-returns
				return 0, err
			}, idempotency.OnLost(policy))
			done <- err
		}()
		err := got(t, written, "the write")
		require.ErrorIs(t, err, idempotency.ErrFenced)
		require.Equal(t, "2", string(replayedLater(t, a, key("1")).Value))
		close(returns)
		require.Equal(t, err, got(t, done, "the function returns"), "and nothing else")
		stats := a.Stats()
		require.EqualValues(t, 1, stats.Fenced)
		require.Zero(t, stats.Abandoned+stats.Released+stats.Failed+stats.Done)
		hooks.Await(t, "store", "begin: granted", "execute: lost (fenced)", "begin: replayed", "record: done", "Overrun")
	}
}

// replayedLater waits for an outcome.
func replayedLater(t testing.TB, in instance, k idempotency.Key) *idempotency.Outcome {
	t.Helper()
	at, rec, err := in.Begin(ctxT(t), k, "payload")
	require.NoError(t, err)
	require.Nil(t, at, "a new attempt")
	return rec
}
